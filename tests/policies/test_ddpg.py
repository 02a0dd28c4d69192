"""DDPG: one step against float64 NumPy, for the targets and for both networks."""

import kit
import pytest
from fakes import VECTOR, space_of
from float64_networks import actor, value

pytestmark = pytest.mark.eager

CONTRACT = {"ddpg": (VECTOR, space_of(3), {})}
RESUMES = {}
"""TD3's has all that it keeps, and a second critic."""

built, bench = kit.critic_benches("ddpg", "target_net", "target_critics")


class Step(kit.CriticStep):
    critics = ("critics",)

    def target(self, p):
        action = actor(p, "target_net", self.next_obs)
        return self.bootstrapped(value(p, "target_critics", action, self.next_obs))

    def actor_loss(self, p):
        return -value(p, "critics", actor(p, "net", self.obs), self.obs).mean()


class TestDDPG(kit.CriticTests):
    Step = Step
