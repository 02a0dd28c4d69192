"""IQN: one update against NumPy, the fractions that it draws."""

import copy
from typing import ClassVar

import action_values as av
import numpy as np
import pytest
from fakes import VECTOR, discrete

pytestmark = pytest.mark.eager

SMALL = {
    "policy.model.n_cosines": 6,
    "policy.model.n_fractions": 5,
    "policy.learn.n_fractions": 4,
    "policy.learn.n_target_fractions": 3,
}
CONTRACT = {"iqn": (VECTOR, discrete(3), {**SMALL, **av.PRIORITIZED, **av.DUELING, "policy.learn.target.freq": 4})}
RESUMES = {}
ALTERNATIVES = av.ALTERNATIVES

MIDDLES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""The K = 5 fixed fractions."""

built, bench, each = av.value_benches("iqn", av.KINDS, learn={"grad_norm": 0.0}, **SMALL)


class TestUpdate(av.ActionValueTests):
    algorithm = "iqn"
    model = SMALL
    drawn: ClassVar = {"next_fractions": np.tile(np.float32([0.2, 0.6]), (30, 1))}

    def quantiles(self, p, part, obs, fractions):
        return av.np_quantiles(p, part, av.np_features(p, part, obs), fractions)

    def values(self, p, part, obs):
        return self.quantiles(p, part, obs, MIDDLES).mean(axis=2)

    def draws(self, bench):
        rng = copy.deepcopy(bench.policy.learn_rng)
        return list(zip(*[rng.random((av.STEPS, av.BATCH, count), np.float32) for count in (4, 3)]))

    def of_best(self, p, obs, best, fractions=(0.2, 0.6)):
        return self.quantiles(p, "target", obs, np.array(fractions))[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        best = self.best(bench, p, rows["next_obs"])
        return av.np_returns(rows, self.of_best(p, rows["next_obs"], best, draw[1]))

    def step(self, bench, p, rows, goal, draw):
        chosen, kappa = self.quantiles(p, "net", rows["obs"], draw[0])[av.AT, rows["action"]], bench.settings.kappa
        loss = av.np_quantile_huber(chosen, draw[0], goal, kappa) / kappa
        return loss, chosen.mean(axis=1), np.abs(goal.mean(axis=1) - chosen.mean(axis=1))
