"""What is said of an id that nobody has registered."""

import gymnasium
import pytest

from minding.envs.single.hints import unknown_id


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("FetchReach-v4", "one of gymnasium-robotics: pip install gymnasium-robotics"),
        ("highway-fast-v0", "then env.env_id='highway_env:highway-fast-v0'"),
        ("FlappyBird-v0", "then env.env_id='flappy_bird_gymnasium:FlappyBird-v0'"),
        ("CartPol-v1", "; did you mean 'CartPole-v1'?"),
        ("HalfCheeta-v5", "; did you mean 'HalfCheetah-v5'?"),
        ("Pong-v5", "a game of Atari is env.env_id='ALE/Pong-v5', with pip install 'minding[atari]'"),
        ("BreakoutNoFrameskip-v4", "env.env_id='ALE/Breakout-v5'"),
    ],
)
def test_the_hint_names_what_was_meant_or_the_package_that_has_it(env_id, hint, monkeypatch):
    for name, spec in list(gymnasium.registry.items()):
        # As in a fresh process, where nothing has imported the package of the games; it also registers older ids.
        if str(spec.entry_point).startswith("ale_py"):
            monkeypatch.delitem(gymnasium.registry, name)
    assert hint in unknown_id(env_id)


def test_an_id_without_its_namespace_is_found(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "ALE/Breakout-v5", gymnasium.spec("CartPole-v1"))
    assert unknown_id("Breakout-v5") == "; did you mean 'ALE/Breakout-v5'?"


@pytest.mark.parametrize("env_id", ["nonsense-v0", "foo-v1", "abc-v0", "Nope-v1", "data"])
def test_an_id_that_is_like_no_other_but_in_its_version_gets_no_hint(env_id):
    assert unknown_id(env_id) == ""
