"""TD3+BC and ReBRAC: one step against float64 NumPy, and what follows in the data."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import actor
from test_td3 import Step as TD3Step
from test_td3 import at_the_limit

from minding.engine.buffers import DatasetTables
from minding.engine.data.dataset import Dataset

pytestmark = pytest.mark.eager

CONTRACT = {
    "td3_bc": (VECTOR, space_of(3), {"policy.model.normalize_obs": True}),
    "td3_bc, ReBRAC": (VECTOR, space_of(2, 2), {"policy.learn.critic_penalty": 0.1, "policy.model.norm": "layer"}),
}
RESUMES = {}
MOVES = {"policy.learn.policy_delay": 1}
ALTERNATIVES = ("policy.collect.noise.kind=ou",)

ALPHA, PENALTY = 1.5, 0.3
built, bench = kit.critic_benches(
    "td3_bc", "target_net", "target_critics", prepare=at_the_limit, alpha=ALPHA, critic_penalty=PENALTY, policy_delay=1
)


class Step(TD3Step):
    def target(self, p, penalty=PENALTY):
        action, rows = self.next_action(p), self.rows
        # What the formulas treat apart is in the batch: the penalty counts where an action is known.
        assert {(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)} == set(zip(rows["terminated"], rows["next_known"], strict=True))
        apart = rows["next_known"] * ((action - rows["next_action"]) ** 2).sum(axis=1)
        return self.bootstrapped(self.smallest(p, self.targets, action, self.next_obs) - penalty * apart)

    def cloning_loss(self, p):
        return ((actor(p, "net", self.obs) - self.action) ** 2).mean()

    def scale(self, p):
        """lambda, which no gradient flows into."""
        return ALPHA / np.abs(self.value_of_policy(p)).mean()

    def metrics(self, p, after):
        judging = self.judging(p, after)
        assert np.abs(self.target(p) - self.target(p, 0.0)).max() > 0.05
        return {
            "critic_loss": self.critic_loss(p, self.target(p)),
            "q_value": self.q_value(p),
            "actor_loss": self.cloning_loss(p) - self.scale(judging) * self.value_of_policy(judging).mean(),
            "cloning_loss": self.cloning_loss(p),
        }

    def losses(self, p, after):
        target, judging = self.target(p), self.judging(p, after)
        scale = self.scale(judging)
        return {
            "critics": (lambda x: self.critic_loss(x, target), p, "critics"),
            "actor": (lambda x: self.cloning_loss(x) - scale * self.value_of_policy(x).mean(), judging, "net"),
        }


class TestTD3BC(kit.CriticTests):
    Step = Step


def test_recorded_next_actions_are_of_the_same_episode(bench):
    """Of two episodes of three steps, a true end and a time limit, and of one that recording cut."""
    action = np.linspace(-1.8, 1.8, 16, dtype=np.float32).reshape(8, 2)
    flags = np.zeros((2, 8), bool)
    flags[0, 2] = flags[1, 5] = True
    obs = np.arange(32, dtype=np.float32).reshape(8, 4)
    final = 100.0 + np.arange(12, dtype=np.float32).reshape(3, 4)
    about = {"env": {"env_action": {**space_of(2, low=-2.0, high=2.0), "rescaled": True}}}
    ends = np.array([2, 5, 7])
    data = Dataset({"": obs}, action, np.ones(8, np.float32), *flags, ends, {"": final}, about, digest="a")
    batch = DatasetTables(data, bench.policy.learn_mode.fields).batch(np.arange(8)[None])
    read = {name: batch.layout.read(batch.tables.host, name, np.arange(8)) for name in batch.layout.fields}
    assert read["next_known"].tolist() == [1, 1, 0, 1, 1, 0, 1, 0]
    assert read["terminated"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    known = read["next_known"] == 1.0
    # In the units of the policy.
    np.testing.assert_allclose(read["next_action"][known], action[1:][known[:-1]] / 2.0, rtol=1e-6)
    np.testing.assert_array_equal(read["next_obs"][ends], final)
    np.testing.assert_array_equal(read["next_obs"][known], obs[1:][known[:-1]])
