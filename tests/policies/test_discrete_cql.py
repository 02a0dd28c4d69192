"""Discrete CQL: one update against float64 NumPy, gradients by finite differences, and illegal actions."""

import action_values as av
import kit
import mindspore as ms
import numpy as np
import pytest
from fakes import discrete, draw_masks

from minding.engine.process.runtime import to_device

pytestmark = pytest.mark.eager

CONTRACT = {"discrete_cql": (av.MASKED, discrete(av.ACTIONS), {"policy.model.dueling": True})}
JUDGED = ("policy.other.holdout=0.3", "policy.eval.fqe=true", "policy.eval.fqe_steps=50", "policy.learn.gamma=0.0")
RESUMES = {"discrete CQL, judged by held-out episodes": ("CartPole-v1", JUDGED)}
"""What it keeps itself, DQN's case has."""
ALTERNATIVES = ("policy.learn.target.kind=periodic",)
ALPHA = 0.7

built, bench, each = av.value_benches(
    "discrete_cql", {"plain": {}}, learn={"alpha": ALPHA, "grad_norm": 0.0, "target.tau": 1e-9}
)


def log_sum_exp(q):
    return np.log(np.exp(q).sum(axis=1))


class TestUpdate(av.ActionValueTests):
    algorithm = "discrete_cql"

    def values(self, p, part, obs):
        return av.linear(p, f"{part}.advantage", av.np_features(p, part, obs))

    def of_best(self, p, obs, best):
        return self.values(p, "target", obs)[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        # Always by double Q-learning.
        best = av.best_actions(*(self.values(p, part, rows["next_obs"]) for part in ("net", "target")), True)
        goal = av.np_returns(rows, self.of_best(p, rows["next_obs"], best)[:, None])[:, 0]
        # What the formulas treat apart is in the batch: true ends, errors beyond the threshold.
        assert {0.0, 1.0} < {*rows["terminated"]}
        assert 0 < (np.abs(self.values(p, "net", rows["obs"])[av.AT, rows["action"]] - goal) > 1.0).sum() < len(goal)
        return goal

    def step(self, bench, p, rows, goal, draw):
        q = self.values(p, "net", rows["obs"])
        chosen = q[av.AT, rows["action"]]
        return av.np_huber(chosen - goal) + ALPHA * (log_sum_exp(q) - chosen), chosen, np.abs(chosen - goal)

    @pytest.mark.parametrize("double", [True])
    def test_the_next_action_is_the_best_legal_one(self, double):
        super().test_the_next_action_is_the_best_legal_one(double)

    def test_illegal_actions_are_not_in_the_sum(self):
        rng, policy = np.random.default_rng(5), av.make_policy(self.algorithm, av.MASKED)
        obs, mask = rng.standard_normal((30, 4)).astype(np.float32), draw_masks((av.ACTIONS,), 30, rng)
        action, leaves = mask.argmax(axis=1), (to_device(mask), to_device(obs))
        plain = {"reward": 0.0, "terminated": 0.0, "discount": 1.0}
        batch = {name: to_device(np.full(30, number, np.float32)) for name, number in plain.items()}
        batch |= {"obs": leaves, "next_obs": leaves, "action": to_device(action.astype(np.int32))}
        q = np.where(mask, self.values(kit.params(policy), "net", obs), -np.inf)
        assert np.isinf(q).any()
        root = policy.root

        @ms.jit
        def gap_of(rows):
            return root.loss(rows)[1]["conservative_gap"]

        gap = (log_sum_exp(q) - q[np.arange(30), action]).mean()
        assert gap_of(batch).asnumpy() == pytest.approx(gap, rel=1e-5)
