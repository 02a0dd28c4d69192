"""The EnvPool backend, where the extra is installed."""

from importlib.util import find_spec

import numpy as np
import pytest

from minding.engine.errors import ConfigError
from minding.envs import check_env, describe_env, make_env_manager

pytestmark = pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra 'envpool'")
CFG = {"env_id": "CartPole-v1", "backend": "envpool"}


def test_episodes_of_envpool_are_counted_without_the_reset_row():
    manager = make_env_manager(CFG, 2, 0)
    manager.reset()
    ends = [end for _ in range(200) for end in manager.step(np.zeros(2, np.int64)).episodes]
    assert all(8 <= end.episode_length <= 11 and end.episode_return == end.episode_length for end in ends)
    manager.close()


def test_an_environment_that_envpool_lacks_is_a_config_error():
    with pytest.raises(ConfigError, match="no such environment"):
        make_env_manager(dict(CFG, env_id="CartPool-v1"), 2, 0)


@pytest.mark.parametrize(
    ("env_id", "shape", "limit"),
    [("HalfCheetah-v5", [17], 1000), ("Pong-v5", [4, 84, 84], 27000), ("CartPole-v1", [4], 500)],
)
def test_environments_of_envpool_are_described_as_the_pools(env_id, shape, limit):
    described = describe_env(dict(CFG, env_id=env_id))
    assert (described["observation"]["shape"], described["max_episode_steps"]) == (shape, limit)


def test_collector_and_evaluator_of_envpool_play_one_game():
    cfg, rows = dict(CFG, env_id="HalfCheetah-v5"), []
    for training in (True, False):
        manager = make_env_manager(cfg, 1, 0, training=training)
        manager.reset()
        rows.append([manager.step(np.full((1, 6), 0.3, np.float32)).next_obs for _ in range(20)])
        manager.close()
    np.testing.assert_array_equal(*rows)


def test_a_pool_is_fit_and_resumes_with_new_episodes():
    found = check_env(dict(CFG, max_episode_steps=30), steps=100)
    assert [each for each in found if each.level == "error"] == []
    assert any("a resumed run begins new episodes" in each.text for each in found)
