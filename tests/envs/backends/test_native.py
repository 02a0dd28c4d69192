"""The vector version of an environment plays the same game as single ones, or is not used."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from minding.engine.errors import ConfigError
from minding.envs import make_env_manager
from minding.envs.backends.native import QuickMultiDiscrete, native_env
from minding.envs.config import env_settings
from minding.envs.single.factory import env_factory


class Forgetful(CartPoleVectorEnv):
    """Takes a time limit and ignores it."""

    def __init__(self, num_envs=1, max_episode_steps=500):
        super().__init__(num_envs)


class Picky(CartPoleVectorEnv):
    """Takes no time limit."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)


@pytest.fixture(params=[Forgetful, Picky])
def env_id(request):
    gymnasium.register(
        "minding-test/Forgetful-v0",
        "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        vector_entry_point=request.param,
        max_episode_steps=4,
    )
    yield "minding-test/Forgetful-v0"
    del gymnasium.registry["minding-test/Forgetful-v0"]


@pytest.mark.parametrize("limit", [None, 3])
def test_auto_avoids_vector_versions_without_the_time_limit(env_id, limit, caplog):
    manager = make_env_manager({"env_id": env_id, "max_episode_steps": limit}, 8, 0)
    truncated = [manager.step(np.arange(8) % 2).truncated.all() for _ in range(limit or 4)]
    assert truncated == [False] * (len(truncated) - 1) + [True]
    assert "time limit" in caplog.text
    assert "env.backend=auto steps single environments" in caplog.text


def test_a_vector_version_without_the_time_limit_is_an_error(env_id):
    with pytest.raises(ConfigError, match=r"env.backend='native': .*time limit.*use 'sync' or 'auto'"):
        make_env_manager({"env_id": env_id, "backend": "native"}, 8, 0)


@pytest.mark.parametrize("start", [None, [0, 3, -7]])
@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_the_quick_space_contains_what_the_plain_one_does(start, dtype):
    plain = spaces.MultiDiscrete([2, 5, 9], dtype=dtype, start=start)
    quick = QuickMultiDiscrete(plain)
    assert quick == plain
    limits = np.iinfo(dtype)
    extremes = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    near = [-8, -7, -1, 0, 1, 2, 3, 4, 7, 8, 9]
    given = [np.array(values, dtype) for values in itertools.product([*near, *extremes], repeat=3)]
    answers = [quick.contains(x) for x in given]
    assert answers == [plain.contains(x) for x in given]
    assert True in answers
    odd = [[0, 3, 0], np.zeros(3), np.zeros(2, dtype), np.zeros((1, 3), dtype), np.zeros(3, np.int16), None]
    assert [quick.contains(x) for x in odd] == [plain.contains(x) for x in odd]


def test_a_vector_version_refuses_actions_that_do_not_exist():
    env = native_env(env_factory(env_settings({"env_id": "CartPole-v1"})), 8)
    assert type(env.unwrapped.action_space) is QuickMultiDiscrete
    env.reset(seed=0)
    env.step(np.zeros(8, np.int64))
    with pytest.raises(AssertionError, match="invalid"):
        env.step(np.full(8, 2))
