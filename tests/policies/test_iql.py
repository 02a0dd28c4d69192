"""IQL: one step against float64 NumPy."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import own_value

pytestmark = pytest.mark.eager

CONTRACT = {"iql": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True})}
RESUMES = {}

EXPECTILE = 0.8
built, bench = kit.critic_benches("iql", "targets", expectile=EXPECTILE, weight_scale=3.0, weight_limit=2.0)


class Step(kit.RegressionStep):
    def target(self, p):
        return self.bootstrapped(own_value(p, "value", self.next_obs))

    def q(self, p):
        return self.smallest(p, self.targets, self.action, self.obs)

    def advantage(self, p):
        advantage = self.q(p) - own_value(p, "value", self.obs)
        assert 0 < (advantage < 0).sum() < kit.BATCH
        return advantage

    def value_loss(self, p, q):
        u = q - own_value(p, "value", self.obs)
        return (np.where(u < 0, 1 - EXPECTILE, EXPECTILE) * u**2).mean()

    def metrics(self, p, after):
        value = own_value(p, "value", self.obs).mean()
        return {**super().metrics(p, after), "value": value, "value_loss": self.value_loss(p, self.q(p))}

    def losses(self, p, after):
        q = self.q(p)
        return {**super().losses(p, after), "value": (lambda x: self.value_loss(x, q), p, "value")}


class TestIQL(kit.CriticTests):
    Step = Step
