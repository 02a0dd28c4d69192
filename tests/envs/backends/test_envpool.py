"""The EnvPool backend, where the extra is installed."""

import sys

import numpy as np
import pytest

from minding.engine.errors import ConfigError, MissingExtraError
from minding.envs import make_env_manager

CFG = {"env_id": "CartPole-v1", "backend": "envpool"}


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingExtraError, match=r"minding\[envpool\]"):
        make_env_manager(CFG, 2, 0)


def test_episodes_of_envpool_are_counted_without_the_reset_row():
    pytest.importorskip("envpool")
    manager = make_env_manager(CFG, 2, 0)
    manager.reset()
    ends = [end for _ in range(200) for end in manager.step(np.zeros(2, np.int64)).episodes]
    assert all(8 <= end.episode_length <= 11 and end.episode_return == end.episode_length for end in ends)
    manager.close()


def test_an_environment_that_envpool_lacks_is_a_config_error():
    pytest.importorskip("envpool")
    with pytest.raises(ConfigError, match="no such environment"):
        make_env_manager(dict(CFG, env_id="CartPool-v1"), 2, 0)
