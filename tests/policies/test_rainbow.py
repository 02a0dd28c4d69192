"""Rainbow: one update against NumPy, with all parts and without some; without any it is DQN."""

import copy

import kit
import numpy as np
import pytest
from action_values import (
    ACTIONS,
    AT,
    INDEX,
    LEARNS,
    MASKED,
    ROWS,
    STEPS,
    best_actions,
    make_policy,
    np_atoms,
    np_huber,
    np_project,
    np_returns,
    random_rows,
    value_benches,
)
from fakes import VECTOR, discrete
from test_c51 import SMALL, SUPPORT, CategoricalTests

from minding.policies.acting.sampling import weight_noise

pytestmark = pytest.mark.eager

EXPECTED = {"policy.model.distributional": False}
OFF = {
    **EXPECTED,
    "policy.model.noisy": False,
    "policy.model.dueling": False,
    "policy.learn.double": False,
    "policy.learn.nstep": 1,
    "policy.other.replay": "uniform",
}
"""Everything that can be turned off."""
CONTRACT = {
    "rainbow": (VECTOR, discrete(ACTIONS), {**SMALL, "policy.learn.target.freq": 4}),
    "rainbow of expected values, masked": (MASKED, discrete(ACTIONS), {**EXPECTED, "policy.other.replay": "uniform"}),
}
LEARNS = {**LEARNS, "policy.model.n_atoms": 21, "policy.learn.nstep": 1}
RESUMES = {"Rainbow": ("CartPole-v1", ("policy.model.n_atoms=7", "policy.learn.target.freq=5"))}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.model.noisy=false")


KINDS = {
    "all": SMALL,
    "expected": {**EXPECTED, "learn": {"double": False}},
    "plain": {**SMALL, "policy.model.noisy": False, "policy.model.dueling": False, "policy.other.replay": "uniform"},
}
"""With all parts; without the distribution and double; without dueling, priorities and noise."""
built, bench, each = value_benches("rainbow", KINDS, learn={"grad_norm": 0.0})


class TestUpdate(CategoricalTests):
    algorithm = "rainbow"
    model = SMALL

    def draws(self, bench):
        """The noise (1, S) of each step: of the online network, of the target and, if it is double, of the choice."""
        policy = bench.policy
        if not policy.net.noise_size:
            return [(None, None, None)] * STEPS
        count = 3 if bench.settings.double else 2
        noise = weight_noise((count, STEPS, 1, policy.net.noise_size), copy.deepcopy(policy.learn_rng))
        return [[each[k] for each in noise] for k in range(STEPS)]

    def values(self, p, part, obs, noise=None):
        # One number for each action, or a distribution.
        atoms = np_atoms(p, part, obs, -1, noise)
        if atoms.shape[2] == 1:
            return atoms[:, :, 0]
        return super().values(p, part, obs, noise)

    def goal(self, bench, p, rows, draw):
        next_obs, online = rows["next_obs"], bench.settings.double
        of_target = self.values(p, "target", next_obs, draw[1])
        best = best_actions(self.values(p, "net", next_obs, draw[2]) if online else of_target, of_target, online)
        if bench.kind == "expected":
            return np_returns(rows, of_target[AT, best][:, None])[:, 0]
        following = self.of_best(p, next_obs, best, draw[1])
        return np_project(following, np_returns(rows, SUPPORT), SUPPORT)

    def step(self, bench, p, rows, goal, draw):
        if bench.kind == "expected":
            q = self.values(p, "net", rows["obs"], draw[0])[AT, rows["action"]]
            return np_huber(q - goal), q, np.abs(q - goal)
        return super().step(bench, p, rows, goal, draw[0])


@pytest.mark.slow
def test_with_everything_off_it_is_dqn():
    off, dqn = make_policy("rainbow", **OFF), make_policy("dqn", learn={"double": False})
    assert off.net.noise_size == 0
    ours, theirs = (kit.Bench(policy, ROWS) for policy in (off, dqn))
    for _ in range(2):
        found, expected = (bench.learn(random_rows(bench), INDEX).metrics for bench in (ours, theirs))
        assert found == pytest.approx(expected, rel=1e-6)
    for name, array in theirs.params.items():
        np.testing.assert_allclose(ours.params[name], array, rtol=1e-5, atol=1e-7, err_msg=name)
