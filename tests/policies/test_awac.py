"""AWAC: one step against float64 NumPy, with limited weights and deviations."""

from typing import ClassVar

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import linear_head

from minding.engine.process.runtime import to_device
from minding.policies.families.weighted_regression import advantage_weights

pytestmark = pytest.mark.eager

CONTRACT = {"awac": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True})}
RESUMES = {}
"""IQL's has all that it keeps, and more; CQL's draws numbers."""

built, bench = kit.critic_benches("awac", "targets", weight_scale=2.0, weight_limit=1.5)


class Step(kit.RegressionStep):
    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        # That of the next action, and that of the policy's own.
        self.following, self.own = self.rng.standard_normal((1, 2, kit.BATCH, kit.SIZE), dtype=np.float32)[0]

    def log_std(self, p):
        return np.clip(p["net.head.log_std"], -5.0, 2.0)

    def drawn(self, p, obs, noise):
        return np.clip(linear_head(p, "net", "linear", obs) + np.exp(self.log_std(p)) * noise, -1.0, 1.0)

    def target(self, p):
        action = self.drawn(p, self.next_obs, self.following)
        return self.bootstrapped(self.smallest(p, self.targets, action, self.next_obs))

    def advantage(self, p):
        action = self.drawn(p, self.obs, self.own)
        assert 0 < (np.abs(action) == 1.0).sum() < action.size
        taken, own = (self.smallest(p, self.critics, each, self.obs) for each in (self.action, action))
        return taken - own


class TestAWAC(kit.CriticTests):
    Step = Step
    close: ClassVar = {"atol": 5e-5}

    def test_a_deviation_below_its_limit_counts_as_the_limit(self, bench):
        bench.root.net.head.log_std.asnumpy()[0] = -6.0
        self.check_formulas(bench)


def test_weights_are_limited_and_no_advantage_overflows():
    advantage = to_device(np.float32([-1e6, -1.0, 0.0, 0.2, 3.0, 1e6]))
    weight = advantage_weights(advantage, 2.0, 100.0).asnumpy()
    np.testing.assert_allclose(weight, [0.0, np.exp(-2.0), 1.0, np.exp(0.4), 100.0, 100.0], rtol=1e-6)
