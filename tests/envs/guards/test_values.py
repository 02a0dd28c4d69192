"""Values that do not fit a space or float32, in every backend and in the check of an environment."""

import logging
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from worlds import Counter

from minding.engine.errors import EnvError
from minding.envs import VectorEnvManager, check_env, make_env_manager
from minding.envs.guards.values import ValueCheck
from minding.envs.spaces.layout import ObsLayout

ZEROS = np.zeros(2, np.int64)


def test_unusable_values_are_found_by_row():
    values = ValueCheck(ObsLayout(spaces.Box(-np.inf, np.inf, (2,), np.float32)))
    obs = np.full((3, 2), 1e19, np.float32)
    assert values.bad_rows([obs], np.full(3, 1e30)) == []
    obs[1, 0] = np.nan
    assert not values.fits([obs], np.zeros(3))
    assert values.bad_rows([obs], np.array([0, 0, np.inf])) == [
        (1, "observation is [   nan 1.e+19]"),
        (2, "reward is inf"),
    ]
    for huge, found in ((1.8e19, False), (1.9e19, True), (-1e38, True)):
        obs[:] = 0
        obs[2, 1] = huge
        rows = values.bad_rows([obs], np.zeros(3))
        assert [row for row, _ in rows] == [2] * found
        values.rounded([obs])
        assert values.fits([obs], np.zeros(3)) is False
        assert not found or "from 1.8e19 on float32 cannot hold the square of a number" in rows[0][1]


def test_of_many_numbers_the_unusable_one_is_named():
    values = ValueCheck(ObsLayout(spaces.Dict({"tank": spaces.Box(-np.inf, np.inf, (4, 5), np.float32)})))
    obs = np.ones((2, 4, 5), np.float32)
    obs[1, 2, 3] = np.nan
    assert values.bad_rows([obs], np.zeros(2)) == [(1, "observation 'tank'[2, 3] is nan")]


class Valued(Counter):
    """Observes `obs` and gives `reward`, from the second step on."""

    def __init__(self, space, obs, reward=0.0):
        super().__init__()
        self.observation_space, self.later, self.given = space, obs, reward

    def reset(self, *, seed=None, options=None):
        self.rewarded = 0.0
        return super().reset(seed=seed)

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, self.given if self.steps > 1 else 0.0, *rest

    def observe(self):
        first = self.observation_space.sample() if isinstance(self.observation_space, spaces.Discrete) else None
        if first is None:
            first = np.zeros_like(np.asarray(self.later))
        return self.later if self.steps > 1 else first


BOX = spaces.Box(-np.inf, np.inf, (1,), np.float64)


INT = spaces.Box(-(2**31), 2**31 - 1, (1,), np.int32)


ROUNDED = {
    "clock": (BOX, np.array([1.7e9 + 0.5]), r"holds 1700000\d+.*float32, whose numbers are 128 apart"),
    "int32": (INT, np.array([2**24 + 1], np.int32), r"holds 16777217.*numbers are 2 apart"),
}


@pytest.mark.parametrize("kind", ROUNDED)
def test_rounded_values_are_one_warning_in_training_and_check(kind, caplog):
    space, obs, text = ROUNDED[kind]

    def env_fn():
        return Valued(space, obs)

    manager = make_env_manager({}, 2, 0, env_fn=env_fn)
    with caplog.at_level(logging.WARNING, "minding.envs"):
        for _ in range(6):
            manager.step(ZEROS)
    (message,) = caplog.messages
    assert re.search(rf"environment 0 \(env_fn\), step \d of its episode: observation {text}", message)
    assert any(found.level == "warn" and re.search(text, found.text) for found in check_env({}, 50, env_fn=env_fn))


class Overwrites(Counter):
    """Writes into the action that it is given; the reward is the sum it found there."""

    def __init__(self, shape=(2,)):
        super().__init__()
        self.action_space = spaces.MultiDiscrete(np.full(shape, 3))

    def step(self, action):
        assert self.action_space.contains(action)
        found, action[...] = float(action.sum()), 0
        return super().step(action)[0], found, False, False, {}


@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_an_environment_may_write_into_its_action(shape):
    manager = make_env_manager({"env_kwargs": {"shape": shape}}, 2, 0, env_fn=Overwrites)
    size = int(np.prod(shape))
    action = np.arange(2 * size).reshape(2, size) % 3
    before = action.copy()
    assert manager.step(action).reward.tolist() == before.sum(1).tolist()
    assert np.array_equal(action, before)
    assert not [found for found in check_env({}, 20, env_fn=lambda: Overwrites(shape)) if found.level == "error"]


@pytest.mark.parametrize("reward", [np.array([2.0]), np.float32(2), np.array(2), True])
def test_a_reward_may_be_an_array_of_one_number(reward):
    def env_fn():
        return Valued(BOX, np.zeros(1), reward)

    manager = make_env_manager({}, 1, 0, env_fn=env_fn)
    manager.step(ZEROS[:1])
    assert manager.step(ZEROS[:1]).reward.tolist() == [np.ravel(reward)[0]]
    assert not [found for found in check_env({}, 20, env_fn=env_fn) if found.level == "error"]


@pytest.mark.parametrize("space", [BOX, spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Dict(x=BOX)])
def test_numbers_beyond_float32_are_told_once(space):
    huge = np.array([1e300]) if space.dtype != np.float32 else 1e300 * np.ones(1)
    obs = {"x": huge} if isinstance(space, spaces.Dict) else huge

    class Huge(Counter):
        observation_space = space

        def __init__(self):
            super().__init__()
            self.observation_space = space

        def observe(self):
            return obs if self.steps else space.sample()

    with pytest.raises(EnvError, match=r"is \[inf\] \(float32 ends at 3.4e38\)"):
        make_env_manager({}, 1, 0, env_fn=Huge).step(ZEROS[:1])
    if space.dtype == np.float32:
        return  # A vector environment of Gymnasium's own narrows these, with a warning that is not ours.
    with pytest.raises(EnvError, match=r"is \[inf\] \(float32 ends at 3.4e38\)"):
        VectorEnvManager(gymnasium.vector.SyncVectorEnv([Huge])).step(ZEROS[:1])


def test_a_mask_may_be_empty_only_where_an_episode_has_ended():
    space = spaces.Dict(action_mask=spaces.MultiBinary(5), a=spaces.Box(-1e9, 1e9, (1,)))
    values = ValueCheck(ObsLayout(space, spaces.MultiDiscrete([2, 3])))
    mask = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]], bool)
    # The last number is one that float32 rounds: rows are looked at closely.
    arrays, over = [np.float32([[0], [0], [1e8]]), mask], np.array([False, True, False])
    assert not values.fits(arrays, np.zeros(3), over)
    found = values.bad_rows(arrays, np.zeros(3), over)
    assert [(row, what.partition(" (")[0]) for row, what in found] == [
        (2, "observation 'action_mask' allows no action")
    ]
    assert [row for row, _ in values.bad_rows(arrays, np.zeros(3))] == [1, 2]
    mask[2] = mask[0]
    arrays[0][2] = 0
    assert values.fits(arrays, np.zeros(3), over)
