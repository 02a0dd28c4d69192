"""IQN: one update against NumPy, the fractions that it draws."""

import copy
from typing import ClassVar

import numpy as np
import pytest
from action_values import (
    ACTIONS,
    ALTERNATIVES,
    AT,
    BATCH,
    DUELING,
    INDEX,
    PRIORITIZED,
    STEPS,
    ActionValueTests,
    linear,
    np_features,
    np_heads,
    np_quantile_huber,
    np_returns,
    random_rows,
    value_benches,
)
from fakes import VECTOR, discrete

pytestmark = pytest.mark.eager

SMALL = {
    "policy.model.n_cosines": 6,
    "policy.model.n_fractions": 5,
    "policy.learn.n_fractions": 4,
    "policy.learn.n_target_fractions": 3,
}
CONTRACT = {
    "iqn": (
        VECTOR,
        discrete(ACTIONS),
        {**SMALL, **PRIORITIZED, "policy.learn.target.freq": 4, "policy.model.dueling": True},
    )
}
RESUMES = {}
__all__ = ["ALTERNATIVES"]

MIDDLES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""The K = 5 fixed fractions."""

KINDS = {"double, prioritized": PRIORITIZED, "plain, dueling": {**DUELING, "learn": {"double": False, "kappa": 0.5}}}
built, bench, each = value_benches("iqn", KINDS, learn={"grad_norm": 0.0}, **SMALL)


class TestUpdate(ActionValueTests):
    algorithm = "iqn"
    model = SMALL
    drawn: ClassVar = {"next_fractions": np.tile(np.float32([0.2, 0.6]), (30, 1))}

    def quantiles(self, p, part, obs, fractions):
        """The network at fractions (N,) or (B, N), one after another: (B, A, N)."""
        features, made = np_features(p, part, obs), []
        for tau in np.broadcast_to(fractions, (len(obs), np.shape(fractions)[-1])).T.astype(np.float64):
            cosines = np.cos(np.pi * np.arange(6) * tau[:, None])
            seen = features * np.maximum(linear(p, f"{part}.embedding.layers.0", cosines), 0.0)
            made.append(np_heads(p, part, seen))
        return np.stack(made, axis=2)

    def values(self, p, part, obs):
        return self.quantiles(p, part, obs, MIDDLES).mean(axis=2)

    def draws(self, bench):
        rng = copy.deepcopy(bench.policy.learn_rng)
        return list(zip(*[rng.random((STEPS, BATCH, count), np.float32) for count in (4, 3)]))

    def of_best(self, p, obs, best, fractions=(0.2, 0.6)):
        return self.quantiles(p, "target", obs, np.array(fractions))[np.arange(len(obs)), best]

    def goal(self, bench, p, rows, draw):
        best = self.best(bench, p, rows["next_obs"])
        return np_returns(rows, self.of_best(p, rows["next_obs"], best, draw[1]))

    def step(self, bench, p, rows, goal, draw):
        chosen, kappa = self.quantiles(p, "net", rows["obs"], draw[0])[AT, rows["action"]], bench.settings.kappa
        loss = np_quantile_huber(chosen, draw[0], goal, kappa) / kappa
        return loss, chosen.mean(axis=1), np.abs(goal.mean(axis=1) - chosen.mean(axis=1))


def test_every_row_and_step_draws_its_own_fractions(bench):
    policy = bench.policy
    state = copy.deepcopy(policy.state_dict())
    batch = bench.batch(random_rows(bench), INDEX)
    draws = [policy.inputs(batch, 0.0).steps for _ in range(2)]
    for name, count in (("fractions", 4), ("next_fractions", 3)):
        numbers = draws[0][name]
        assert numbers.shape == (STEPS, BATCH, count)
        assert len(np.unique(numbers)) == numbers.size
        assert 0.0 <= numbers.min() < numbers.max() < 1.0
        assert not np.array_equal(numbers, draws[1][name])
    policy.load_state_dict(state)
    assert np.array_equal(policy.inputs(batch, 0.0).steps["fractions"], draws[0]["fractions"])
