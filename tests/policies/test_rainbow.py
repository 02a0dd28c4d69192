"""Rainbow: one update against NumPy, with all parts and without some."""

import copy

import action_values as av
import numpy as np
import pytest
from fakes import VECTOR, discrete
from test_c51 import SMALL, SUPPORT, CategoricalTests

from minding.policies.acting.sampling import weight_noise

pytestmark = pytest.mark.eager

EXPECTED = {"policy.model.distributional": False}
CONTRACT = {
    "rainbow": (VECTOR, discrete(av.ACTIONS), {**SMALL, "policy.learn.target.freq": 4}),
    "rainbow of expected values, masked": (
        av.MASKED,
        discrete(av.ACTIONS),
        {**EXPECTED, "policy.other.replay": "uniform"},
    ),
}
LEARNS = {**av.LEARNS, "policy.model.n_atoms": 21, "policy.learn.nstep": 1}
RESUMES = {"Rainbow": ("CartPole-v1", ("policy.model.n_atoms=7", "policy.learn.target.freq=5"))}
ALTERNATIVES = ("policy.learn.target.kind=soft", "policy.model.noisy=false")

KINDS = {
    "all": SMALL,
    "expected": {**EXPECTED, "learn": {"double": False}},
    "plain": {**SMALL, "policy.model.noisy": False, "policy.model.dueling": False, "policy.other.replay": "uniform"},
}
"""With all parts; without the distribution and double; without dueling, priorities and noise."""
built, bench, each = av.value_benches("rainbow", KINDS, learn={"grad_norm": 0.0})


class TestUpdate(CategoricalTests):
    algorithm = "rainbow"
    model = SMALL

    def draws(self, bench):
        """The noise (1, S) of each step: of the online network, of the target and, if it is double, of the choice."""
        policy = bench.policy
        if not policy.net.noise_size:
            return [(None, None, None)] * av.STEPS
        count = 3 if bench.settings.double else 2
        noise = weight_noise((count, av.STEPS, 1, policy.net.noise_size), copy.deepcopy(policy.learn_rng))
        return [[each[k] for each in noise] for k in range(av.STEPS)]

    def values(self, p, part, obs, noise=None):
        # One number for each action, or a distribution.
        atoms = av.np_atoms(p, part, obs, -1, noise)
        if atoms.shape[2] == 1:
            return atoms[:, :, 0]
        return super().values(p, part, obs, noise)

    def goal(self, bench, p, rows, draw):
        next_obs, online = rows["next_obs"], bench.settings.double
        of_target = self.values(p, "target", next_obs, draw[1])
        best = av.best_actions(self.values(p, "net", next_obs, draw[2]) if online else of_target, of_target, online)
        if bench.kind == "expected":
            return av.np_returns(rows, of_target[av.AT, best][:, None])[:, 0]
        following = self.of_best(p, next_obs, best, draw[1])
        return av.np_project(following, av.np_returns(rows, SUPPORT), SUPPORT)

    def step(self, bench, p, rows, goal, draw):
        if bench.kind == "expected":
            q = self.values(p, "net", rows["obs"], draw[0])[av.AT, rows["action"]]
            return av.np_huber(q - goal), q, np.abs(q - goal)
        return super().step(bench, p, rows, goal, draw[0])
