"""Descriptions of environments."""

import json

import gymnasium
import pytest
import yaml
from gymnasium import spaces

from minding.engine.errors import SpaceError
from minding.envs import describe_env, describe_space, register_env


def test_box_actions_are_described_as_policies_see_them():
    rescaled = describe_env({"env_id": "Pendulum-v1"})["action"]
    assert rescaled == {"kind": "box", "shape": [1], "dtype": "float32", "low": [-1.0], "high": [1.0]}
    raw = describe_env({"env_id": "Pendulum-v1", "rescale_action": False})["action"]
    assert (raw["low"], raw["high"]) == ([-2.0], [2.0])


def test_nested_observations_and_their_dtypes_as_handed_out():
    description = describe_env({"env_id": "worlds:Nested"})
    parts = description["observation"]["spaces"]
    assert list(parts) == ["camera", "joint", "pair"]
    assert parts["joint"]["spaces"]["position"]["dtype"] == "float32"
    assert parts["pair"]["spaces"] == [
        {"kind": "discrete", "n": 100, "start": 0},
        {"kind": "multi_binary", "shape": [2]},
    ]
    assert description["action"] == {"kind": "multi_discrete", "nvec": [3, 2]}
    assert description["max_episode_steps"] is None


def test_bounds_of_images_are_one_pair_of_numbers():
    description = describe_env({"env_id": "minding/PixelCatch-v0"})["observation"]
    assert description == {"kind": "box", "shape": [1, 21, 21], "dtype": "uint8", "low": 0, "high": 255}


def test_descriptions_are_plain_enough_for_json_and_yaml():
    for env_id in ("CartPole-v1", "worlds:Nested", "minding/PixelCatch-v0"):
        description = describe_env({"env_id": env_id})
        assert json.loads(json.dumps(description)) == description
        assert yaml.safe_load(yaml.safe_dump(description)) == description


def test_an_unsupported_space_is_named():
    with pytest.raises(SpaceError, match="Text"):
        describe_space(spaces.Dict(name=spaces.Text(4)))


def test_environments_can_be_registered_and_made_by_class():
    import worlds

    register_env("tests/Counter-v3", worlds.Counter, max_episode_steps=9)
    assert describe_env({"env_id": "tests/Counter-v3"})["max_episode_steps"] == 9
    del gymnasium.registry["tests/Counter-v3"]
    assert describe_env({}, env_fn=worlds.Counter)["action"]["n"] == 2
