"""Rules of environments with goals, whatever rows they were written for."""

import logging

import numpy as np
import pytest

from minding.middleware.her_data_enhancer import GoalRule

ROWS = 70
ACHIEVED, DESIRED = ({"": np.random.default_rng(seed).integers(0, 2, (ROWS, 2)).astype(np.float32)} for seed in (0, 1))
MISSED = (ACHIEVED[""] != DESIRED[""]).any(1)
EFFORT = np.arange(ROWS, dtype=np.float32)
EXPECTED = np.where(MISSED, -1.0, 0.0) - EFFORT


class Env:
    """Counts how often its rule is asked."""

    def __init__(self):
        self.asked = 0

    def compute_reward(self, achieved_goal, desired_goal, info):
        self.asked += 1
        return self.rule(achieved_goal, desired_goal, info)


class Arrays(Env):
    def rule(self, achieved, desired, info):
        return -(achieved != desired).any(axis=-1).astype(float) - info["effort"]


class Dicts(Env):
    """As Stable-Baselines3 asks."""

    def rule(self, achieved, desired, info):
        assert len(info) == len(achieved) == len(desired)
        return -(achieved != desired).any(axis=1).astype(float) - np.array([each["effort"] for each in info])


class Row(Env):
    """For many rows at once it would return a single number."""

    def rule(self, achieved, desired, info):
        return (0.0 if np.array_equal(achieved, desired) else -1.0) - float(info["effort"])


class Mistaken(Env):
    """For many rows at once it would return as many numbers, and others."""

    def rule(self, achieved, desired, info):
        return (0.0 if np.array_equal(achieved, desired) else -1.0) - info["effort"]


@pytest.mark.parametrize(("kind", "calls"), [(Arrays, 1), (Dicts, 1), (Row, ROWS), (Mistaken, ROWS)])
def test_rows_are_given_in_the_form_that_the_rule_takes(kind, calls, caplog):
    env = kind()
    rule = GoalRule(env, "compute_reward")
    with caplog.at_level(logging.INFO, "minding.envs"):
        for _ in range(2):
            env.asked = 0
            np.testing.assert_array_equal(rule(ACHIEVED, DESIRED, {"effort": EFFORT}), EXPECTED)
    # It was tried out in the first call.
    assert env.asked == calls
    assert (f"{kind.__name__}.compute_reward takes one row at a time" in caplog.text) == (calls > 1)


def test_a_single_row_whose_goal_is_missed_tells_the_form():
    rule, first = GoalRule(Mistaken(), "compute_reward"), np.flatnonzero(MISSED)[:1]
    achieved, desired = ({"": goal[""][first]} for goal in (ACHIEVED, DESIRED))
    assert rule(achieved, desired, {"effort": EFFORT[first]}).tolist() == EXPECTED[first].tolist()
    np.testing.assert_array_equal(rule(ACHIEVED, DESIRED, {"effort": EFFORT}), EXPECTED)
