"""The vector version of an environment plays the same game as single ones, or is not used."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from minding.engine.errors import ConfigError
from minding.envs import make_env_manager


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
def test_a_vector_version_that_loses_the_time_limit_is_not_used_by_auto(env_id, limit, caplog):
    manager = make_env_manager({"env_id": env_id, "max_episode_steps": limit}, 8, 0)
    truncated = [manager.step(np.arange(8) % 2).truncated.all() for _ in range(limit or 4)]
    assert truncated == [False] * (len(truncated) - 1) + [True]
    assert "time limit" in caplog.text
    assert "env.backend=auto steps single environments" in caplog.text


def test_a_vector_version_that_loses_the_time_limit_is_an_error_if_it_was_asked_for(env_id):
    with pytest.raises(ConfigError, match=r"env.backend='native': .*time limit.*use 'sync' or 'auto'"):
        make_env_manager({"env_id": env_id, "backend": "native"}, 8, 0)


def test_cartpole_and_other_shipped_ones_keep_theirs(caplog):
    make_env_manager({"env_id": "CartPole-v1", "max_episode_steps": 7}, 8, 0).close()
    assert not caplog.text
