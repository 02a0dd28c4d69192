"""TQC: one step against float64 NumPy, the quantiles that are left out."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import quantiles, squashed

pytestmark = pytest.mark.eager

CONTRACT = {"tqc": (VECTOR, space_of(3), {"policy.model.n_quantiles": 5})}
RESUMES = {}
"""SAC's has all that it keeps."""

ALPHA, CRITICS, QUANTILES, DROPPED = 0.2, 3, 5, 2
built, bench = kit.benches(
    "tqc",
    action=space_of(kit.SIZE),
    prepare=kit.disturb("targets"),
    learn={"learning_rate": kit.RATE, "tau": kit.TAU, "alpha": ALPHA, "dropped_quantiles": DROPPED},
    **{**kit.RAW, "policy.model.n_critics": CRITICS, "policy.model.n_quantiles": QUANTILES},
)


def quantile_loss(found, target):
    """The mean over rows, quantiles and targets, (B, M) and (B, K), pair by pair."""
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    error = target[:, None, :] - found[:, :, None]
    size = np.abs(error)
    huber = np.where(size <= 1.0, 0.5 * error**2, size - 0.5)
    return (np.abs(levels[None, :, None] - (error < 0)) * huber).mean()


class Step(kit.SoftStep):
    critics = tuple(f"critics.q{k}" for k in range(1, CRITICS + 1))
    targets = tuple(f"targets.q{k}" for k in range(1, CRITICS + 1))

    def target(self, p):
        action, log_prob = squashed(p, "net", self.next_obs, self.following)
        pooled = np.concatenate([quantiles(p, name, action, self.next_obs) for name in self.targets], axis=1)
        lowest = np.sort(pooled, axis=1)[:, : CRITICS * (QUANTILES - DROPPED)]
        rest = (self.rows["discount"] * (1.0 - self.rows["terminated"]))[:, None]
        return self.rows["reward"][:, None] + rest * (lowest - ALPHA * log_prob[:, None])

    def critic_loss(self, p, target):
        return sum(quantile_loss(quantiles(p, name, self.action, self.obs), target) for name in self.critics)

    def q_value(self, p):
        return quantiles(p, self.critics[0], self.action, self.obs).mean()

    def worth(self, p, action):
        return np.mean([quantiles(p, name, action, self.obs).mean(axis=1) for name in self.critics], axis=0)


class TestTQC(kit.CriticTests):
    Step = Step
