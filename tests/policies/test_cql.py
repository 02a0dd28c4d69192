"""CQL: one step against float64 NumPy, the log of an integral by quadrature."""

from typing import ClassVar

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import gradients, squashed, value
from kit import BATCH, RATE, SIZE

from minding.engine.buffers import DatasetTables
from minding.engine.data.dataset import Dataset

pytestmark = pytest.mark.eager

SMALL = {"policy.model.normalize_obs": True, "policy.learn.n_actions": 2}
CONTRACT = {
    "cql": (VECTOR, space_of(2, 2), SMALL),
    "cql, Cal-QL": (VECTOR, space_of(3), {"policy.learn.n_actions": 2, "policy.learn.calibrated": True}),
}
RESUMES = {
    "CQL, Lagrange, Cal-QL": (
        "Pendulum-v1",
        ("policy.learn.lagrange=true", "policy.learn.n_actions=2", "policy.learn.calibrated=true"),
    )
}

COUNT, WEIGHT, ALLOWED, ALPHA, ACTOR_RATE = 3, 2.0, 1.0, 0.3, 0.002
LAGRANGE = {"lagrange": True, "lagrange_gap": ALLOWED, "conservative_weight": WEIGHT}
GAMMA, CALIBRATED = 0.9, {"calibrated": True, "gamma": 0.5}
KINDS = {"cql": {}, "cal_ql": {"learn": {"calibrated": True}}}
LEARN = {"n_actions": COUNT, "alpha": ALPHA, "actor_learning_rate": ACTOR_RATE, "gamma": GAMMA, **LAGRANGE}
built, bench = kit.critic_benches("cql", "targets", kinds=KINDS, **LEARN)


class Step(kit.SoftStep):
    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        # The random numbers in the order of their draws. No gradient flows through the actions.
        self.others = self.rng.standard_normal((2, COUNT, BATCH, SIZE), dtype=np.float32)
        self.uniform = 2.0 * self.rng.random((COUNT, BATCH, SIZE), dtype=np.float32) - 1.0
        self.before = bench.params

    def target(self, p):
        action, _ = squashed(p, "net", self.next_obs, self.following)
        return self.bootstrapped(self.smallest(p, self.targets, action, self.next_obs))

    def gaps(self, p):
        """The mean gap of each critic."""
        here, log_here = squashed(self.before, "net", self.obs, self.others[0])
        there, log_there = squashed(self.before, "net", self.next_obs, self.others[1])
        actions = np.concatenate([self.uniform, here, there])
        log_density = np.concatenate([np.full((COUNT, BATCH), -SIZE * np.log(2.0)), log_here, log_there])
        made = []
        for name in self.critics:
            values = np.stack([value(p, name, action, self.obs) for action in actions])
            if self.settings["calibrated"]:
                values[COUNT:] = np.maximum(values[COUNT:], self.rows[f"return.{GAMMA}"])
            integral = np.log(np.exp(values - log_density).mean(axis=0))
            made.append((integral - value(p, name, self.action, self.obs)).mean())
        return made

    def critic_loss(self, p, target):
        return super().critic_loss(p, target) + WEIGHT * sum(self.gaps(p))

    def metrics(self, p, after):
        gap = {"conservative_gap": np.mean(self.gaps(p)), "conservative_weight": WEIGHT}
        return {**super().metrics(p, after), **gap}


class TestCQL(kit.CriticTests):
    Step = Step
    close: ClassVar = {"rtol": 2e-4, "atol": 5e-6}

    def test_calibrated_values_are_those_of_the_formulas(self, built):
        bench = built("cal_ql")
        rows, p = self.rows(bench), bench.params
        step = Step(bench, rows)
        # Returns above and below the values.
        above = step.rows[f"return.{GAMMA}"] > value(p, Step.critics[0], step.action, step.obs)
        assert 0 < above.sum() < len(above)
        self.check_formulas(bench)

    def test_steps_in_one_call_are_those_of_single_calls(self, bench):
        self.check_steps_in_a_call(bench)

    @pytest.mark.parametrize(("choose", "sign"), [(np.argmax, 1), (np.argmin, -1)])
    def test_the_weight_falls_below_the_allowed_gap_and_rises_above(self, bench, choose, sign):
        rows = self.rows(bench)
        for q in (bench.root.critics.q1, bench.root.critics.q2):
            q.value.weight.asnumpy()[...] *= 20.0
        p = bench.params
        # Values of the recorded actions are the highest ones, or the lowest.
        corners, count = np.float32([[x, y] for x in (-1, 1) for y in (-1, 1)]), len(rows["obs"])
        of_corners = [
            sum(value(p, name, np.tile(corner, (count, 1)), rows["obs"]) for name in Step.critics) for corner in corners
        ]
        rows["action"] = corners[choose(of_corners, axis=0)]
        gap = np.mean(Step(bench, rows).gaps(p))
        self.learn(bench, rows)
        (found,) = gradients(bench.policy, "weight")
        assert found == pytest.approx(-WEIGHT * (gap - ALLOWED), rel=1e-4)
        # Adam's first step.
        moved_by = float(bench.root.log_weight.asnumpy()) - p["log_weight"]
        assert moved_by == pytest.approx(-sign * RATE, rel=1e-3)

    def test_actor_and_temperature_have_a_step_size_of_their_own(self, bench):
        old = bench.params
        self.learn(bench, self.rows(bench))
        new = bench.params
        # Adam's first step is the learning rate, where there is a gradient.
        for name, rate in (("net", ACTOR_RATE), ("log_alpha", ACTOR_RATE), ("critics", RATE), ("log_weight", RATE)):
            largest = max(np.abs(new[key] - old[key]).max() for key in old if key.startswith(name))
            assert largest == pytest.approx(rate, rel=1e-3)


def test_recorded_returns_are_discounted_within_an_episode():
    end, cut = ({"terminated": over, "truncated": not over} for over in (True, False))
    data = Dataset.of_episodes(
        [
            {"obs": np.zeros((4, 4)), "action": np.zeros((3, 1)), "reward": [1.0, 2.0, 4.0], **end},
            {"obs": np.zeros((3, 4)), "action": np.zeros((2, 1)), "reward": [8.0, 16.0], **cut},
        ],
        action_low=-1.0,
        action_high=1.0,
    )
    found = data.rows(["return.0.5", "return.1.0"], np.array([0, 4, 2, 3]))
    assert found["return.0.5"].tolist() == [3.0, 16.0, 4.0, 16.0]
    assert found["return.1.0"].tolist() == [7.0, 16.0, 4.0, 24.0]
    tables = DatasetTables(data, kit.make_policy("cql", action=space_of(1), learn=CALIBRATED).learn_mode.fields)
    batch = tables.batch(np.array([[0, 3]]))
    assert batch.layout.read(batch.tables.host, "return.0.5", batch.index)[0].tolist() == [3.0, 16.0]


def test_a_step_that_was_not_recorded_bounds_no_value():
    field = kit.make_policy("cql", action=space_of(1), learn=CALIBRATED).learn_mode.fields["return.0.5"]
    assert field.default == -1e30
