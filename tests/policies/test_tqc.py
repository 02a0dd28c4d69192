"""TQC: one step against float64 NumPy, the quantiles that are left out."""

import kit
import numpy as np
import pytest
from action_values import np_quantile_huber
from fakes import VECTOR, space_of
from float64_networks import quantiles, squashed

from minding.policies.ops.distributional import midpoints

pytestmark = pytest.mark.eager

CONTRACT = {"tqc": (VECTOR, space_of(3), {"policy.model.n_quantiles": 5})}
RESUMES = {}
"""SAC's has all that it keeps."""

ALPHA, CRITICS, QUANTILES, DROPPED = 0.2, 3, 5, 2
MODEL = {"n_critics": CRITICS, "n_quantiles": QUANTILES}
built, bench = kit.critic_benches("tqc", "targets", model=MODEL, alpha=ALPHA, dropped_quantiles=DROPPED)


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
        levels, found = midpoints(QUANTILES), [quantiles(p, name, self.action, self.obs) for name in self.critics]
        return sum(np_quantile_huber(each, levels, target, 1.0).mean() / QUANTILES for each in found)

    def q_value(self, p):
        return quantiles(p, self.critics[0], self.action, self.obs).mean()

    def worth(self, p, action):
        return np.mean([quantiles(p, name, action, self.obs).mean(axis=1) for name in self.critics], axis=0)


class TestTQC(kit.CriticTests):
    Step = Step
