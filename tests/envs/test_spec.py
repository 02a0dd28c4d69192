"""Descriptions of environments."""

import gymnasium

from minding.envs import describe_env, register_env


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


def test_environments_can_be_registered_and_made_by_class():
    import worlds

    register_env("tests/Counter-v3", worlds.Counter, max_episode_steps=9)
    assert describe_env({"env_id": "tests/Counter-v3"})["max_episode_steps"] == 9
    del gymnasium.registry["tests/Counter-v3"]
    assert describe_env({}, env_fn=worlds.Counter)["action"]["n"] == 2
