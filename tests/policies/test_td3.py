"""TD3: one step against float64 NumPy, the delay of the actor, the noise on the target action."""

import copy

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import actor, moved, value

pytestmark = pytest.mark.eager

CONTRACT = {"td3": (VECTOR, space_of(3), {})}
LEARNS = {
    **kit.LEARNS,
    # With a linear critic an actor finds back from the wrong end, see `test_ddpg.py`.
    "policy.model.hidden": [],
    "policy.learn.learning_rate": 0.01,
    "policy.learn.tau": 0.05,
    "policy.collect.random_steps": 400,
    "policy.collect.noise.sigma": 0.4,
}
RESUMES = {}
MOVES = {"policy.learn.policy_delay": 1}
ALTERNATIVES = ("policy.collect.noise.kind=ou",)


def at_the_limit(bench):
    """Target actions are at their limit, in one of two directions."""
    bench.root.target_net.head.linear.bias.asnumpy()[...] += [1.5, 0.0]


built, bench = kit.critic_benches("td3", "target_net", "target_critics", prepare=at_the_limit, policy_delay=1)


class Step(kit.CriticStep):
    targets = ("target_critics.q1", "target_critics.q2")

    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        noise = self.rng.standard_normal((1, kit.BATCH, kit.SIZE), dtype=np.float32)[0]
        self.noise = np.clip(0.2 * noise, -0.5, 0.5)

    def next_action(self, p):
        return np.clip(actor(p, "target_net", self.next_obs) + self.noise, -1.0, 1.0)

    def target(self, p):
        action = self.next_action(p)
        # What the formulas treat apart is in the batch.
        assert 0 < (np.abs(action) == 1.0).sum() < action.size
        return self.bootstrapped(self.smallest(p, self.targets, action, self.next_obs))

    def value_of_policy(self, p):
        return value(p, "critics.q1", actor(p, "net", self.obs), self.obs)

    def actor_loss(self, p):
        return -self.value_of_policy(p).mean()


class TestTD3(kit.CriticTests):
    Step = Step

    @pytest.mark.parametrize(("steps", "delay"), [(1, 3), pytest.param(3, 6, marks=pytest.mark.slow)])
    def test_actor_and_targets_move_in_due_steps_across_calls(self, bench, steps, delay):
        bench.settings.policy_delay = delay
        before, kinds, rows = bench.params, set(), self.rows(bench)
        for first in range(1, 6 * steps, steps):
            output = self.learn(bench, rows, steps=steps)
            after, due = bench.params, any(k % delay == 0 for k in range(first, first + steps))
            assert moved(before, after) == (kit.parts_of(bench) if due else {"critics"})
            assert ("actor_loss" in output.metrics) == due
            before = after
            kinds.add(due)
        assert kinds == {True, False}

    @pytest.mark.parametrize(("delay", "own"), [(2, 1), (1, 3)])
    def test_steps_in_one_call_are_those_of_single_calls(self, bench, delay, own):
        bench.settings.policy_delay = delay
        start, rows = copy.deepcopy(bench.policy.state_dict()), self.rows(bench)
        single = [self.learn(bench, rows, k).metrics for k in range(kit.STEPS)]
        expected = bench.params
        bench.policy.load_state_dict(start)
        together = self.learn(bench, rows, steps=kit.STEPS).metrics
        for name, values in bench.params.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
        losses = [metrics["actor_loss"] for metrics in single if "actor_loss" in metrics]
        assert len(losses) == own
        assert together["actor_loss"] == pytest.approx(np.mean(losses), rel=1e-4, abs=1e-6)
        assert together["critic_loss"] == pytest.approx(np.mean([m["critic_loss"] for m in single]), rel=1e-4)
