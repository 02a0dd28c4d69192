"""What is said of an id that nobody has registered."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from minding.engine.errors import ConfigError, SpaceError
from minding.envs.single.env_objects import env_settings_of, unknown_id
from minding.envs.spec import describe_env, describe_observation


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch):
    """As in a fresh process, where nothing has imported the package of the games; it also registers older ids."""
    for name, spec in list(gymnasium.registry.items()):
        if str(spec.entry_point).startswith("ale_py"):
            monkeypatch.delitem(gymnasium.registry, name)


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("FetchReach-v4", "one of gymnasium-robotics: pip install gymnasium-robotics"),
        ("highway-fast-v0", "then env.env_id='highway_env:highway-fast-v0'"),
        ("FlappyBird-v0", "then env.env_id='flappy_bird_gymnasium:FlappyBird-v0'"),
        ("CartPol-v1", "; did you mean 'CartPole-v1'?"),
        ("HalfCheeta-v5", "; did you mean 'HalfCheetah-v5'?"),
        ("Pong-v5", "env.env_id='ALE/Pong-v5' env.wrappers=[atari] env.env_kwargs.frameskip=1, with pip install"),
        *((f"Breakout{kind}", "ALE/Breakout-v5' env.wr") for kind in ("-v0", "NoFrameskip-v4", "Deterministic-v4")),
        ("Breakout-ramNoFrameskip-v0", "env.env_id='ALE/Breakout-v5' env.env_kwargs.obs_type=ram"),
        ("Pendulum-v0", "; did you mean 'Pendulum-v1'?"),
    ],
)
def test_the_hint_names_what_was_meant_or_its_package(env_id, hint):
    assert hint in unknown_id(env_id)


def test_an_id_without_its_namespace_is_found(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "ALE/Breakout-v5", gymnasium.spec("CartPole-v1"))
    assert unknown_id("Breakout-v5") == "; did you mean 'ALE/Breakout-v5'?"


@pytest.mark.parametrize("env_id", ["nonsense-v0", "foo-v1", "abc-v0", "Nope-v5", "SuperMario-1-1-v0", "data"])
def test_an_unknown_id_may_be_registered_by_a_package(env_id):
    assert unknown_id(env_id).endswith(f"is env.env_id='package:{env_id}'")


def test_an_old_version_that_cannot_be_made_names_the_new_one():
    with pytest.raises(ConfigError, match=r"HalfCheetah-v2 cannot be made: .*; did you mean 'HalfCheetah-v5'\?"):
        describe_env({"env_id": "HalfCheetah-v2"})


def test_an_environment_of_the_old_gym_says_what_to_do():
    of_gym = type("Box", (), {"__module__": "gym.spaces.box"})()

    class Old(type("Env", (), {"__module__": "gym.core"})):
        observation_space = action_space = of_gym

        def reset(self): ...

        def close(self): ...

    with pytest.raises(ConfigError, match=r"cannot be copied: .*; it belongs to the old package gym: import gymnasium"):
        env_settings_of(Old())
    with pytest.raises(ConfigError, match=r"Old.observation_space: expected a gymnasium.Space, .* the old package gym"):
        describe_env({}, Old)


def test_raw_images_of_atari_name_their_preprocessing():
    with pytest.raises(SpaceError, match=r"a game of Atari needs env.wrappers=\[atari\] env.env_kwargs.frameskip=1"):
        describe_observation(Box(0, 255, (210, 160, 3), np.uint8))
