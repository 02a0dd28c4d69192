"""What is said of an id that nobody has registered."""

import gymnasium
import pytest

from minding.envs.single.env_objects import unknown_id


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
