"""IQL: one step against float64 NumPy."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import linear_head, normal, own_value

pytestmark = pytest.mark.eager

CONTRACT = {"iql": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True})}
RESUMES = {}

EXPECTILE, SCALE, LIMIT = 0.8, 3.0, 2.0
built, bench = kit.critic_benches("iql", "targets", expectile=EXPECTILE, weight_scale=SCALE, weight_limit=LIMIT)


class Step(kit.CriticStep):
    def target(self, p):
        return self.bootstrapped(own_value(p, "value", self.next_obs))

    def q(self, p):
        return self.smallest(p, self.targets, self.action, self.obs)

    def advantage(self, p):
        return self.q(p) - own_value(p, "value", self.obs)

    def weights(self, p):
        advantage = self.advantage(p)
        weight = np.minimum(np.exp(SCALE * advantage), LIMIT)
        # What the formulas treat apart is in the batch.
        assert 0 < (weight == LIMIT).sum() < kit.BATCH
        assert 0 < (advantage < 0).sum() < kit.BATCH
        return weight

    def actor_loss(self, p, weight):
        log_prob, _ = normal(linear_head(p, "net", "linear", self.obs), p["net.head.log_std"], self.action)
        return -(weight * log_prob).mean()

    def value_loss(self, p, q):
        u = q - own_value(p, "value", self.obs)
        return (np.where(u < 0, 1 - EXPECTILE, EXPECTILE) * u**2).mean()

    def metrics(self, p, after):
        weight = self.weights(p)
        return {
            "critic_loss": self.critic_loss(p, self.target(p)),
            "actor_loss": self.actor_loss(p, weight),
            "value_loss": self.value_loss(p, self.q(p)),
            "value": own_value(p, "value", self.obs).mean(),
            "q_value": self.q_value(p),
            "advantage": self.advantage(p).mean(),
            "weight": weight.mean(),
        }

    def losses(self, p, after):
        target, weight, q = self.target(p), self.weights(p), self.q(p)
        return {
            "critics": (lambda x: self.critic_loss(x, target), p, "critics"),
            "actor": (lambda x: self.actor_loss(x, weight), p, "net"),
            "value": (lambda x: self.value_loss(x, q), p, "value"),
        }


class TestIQL(kit.CriticTests):
    Step = Step
