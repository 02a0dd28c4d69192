"""Atari, where the extra is installed: the vector version and single games show the same; lives, rewards, settings."""

import numpy as np
import pytest

from minding.engine.errors import ConfigError
from minding.envs import check, check_env, describe_env, make_env_manager
from minding.envs.backends.native import atari_options
from minding.envs.config import env_settings
from minding.envs.single.factory import env_factory

pytest.importorskip("ale_py", reason="needs the extra 'atari'")
pytest.importorskip("cv2", reason="needs the extra 'atari'")


def settings(game="Pong", backend="sync", wrapper=None, **env):
    kwargs = {"frameskip": 1, "repeat_action_probability": 0.0}
    wrappers = [{"atari": {"noop_max": 0, **(wrapper or {})}}]
    return {"env_id": f"ALE/{game}-v5", "env_kwargs": kwargs, "wrappers": wrappers, "backend": backend, **env}


@pytest.fixture
def make():
    made = []

    def make_manager(num_envs=2, training=True, **env):
        made.append(make_env_manager(settings(**env), num_envs, 0, training=training))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()


def valid_rows(manager, actions):
    """What each environment shows, without the steps in which it only reset, which all have in the same places."""
    rows = [[manager.reset()[n]] for n in range(manager.num_envs)]
    ends = []
    for action in actions:
        step = manager.step(np.full(manager.num_envs, action))
        for n in range(manager.num_envs):
            if step.valid is None or step.valid[n]:
                rows[n].append((step.next_obs[n].copy(), float(step.reward[n])))
        ends += [(end.env_id, end.episode_return, end.episode_length) for end in step.episodes]
    return rows, ends


def test_the_vector_version_shows_what_single_games_show(make):
    actions = np.random.default_rng(0).integers(0, 6, 60)
    (single, _), (vector, _) = (valid_rows(make(backend=backend), actions) for backend in ("sync", "native"))
    for mine, theirs in zip(single, vector):
        np.testing.assert_array_equal(mine[0], theirs[0])
        for (obs, reward), (other, its) in zip(mine[1:], theirs[1:]):
            np.testing.assert_array_equal(obs, other)
            assert reward == its
    assert single[0][0].shape == (4, 84, 84)


def test_games_end_alike_and_truncation_is_not_termination(make):
    found = []
    for backend in ("sync", "native"):
        manager = make(num_envs=1, backend=backend, max_episode_steps=80)
        manager.reset()
        steps = [manager.step(np.zeros(1, int)) for _ in range(45)]
        steps = [step for step in steps if step.valid is None]
        found.append([(bool(step.terminated[0]), bool(step.truncated[0])) for step in steps[:40]])
    assert found[0] == found[1]
    assert [k for k, (_, truncated) in enumerate(found[0]) if truncated] == [19, 39]
    assert not any(terminated for terminated, _ in found[0])


def lives(make, backend, training):
    manager = make(game="Breakout", backend=backend, num_envs=1, training=training, episodic_life=True, reward_clip=0.5)
    manager.reset()
    ends, rewards = [], []
    rng = np.random.default_rng(3)
    for _ in range(400):
        # Fire, and move at random.
        step = manager.step(rng.integers(1, 4, 1))
        ends += step.episodes
        rewards.append(float(step.reward[0]))
    return ends, rewards


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sync", "native"])
def test_lives_and_clipped_rewards_are_for_training_only(backend, make):
    games, points = lives(make, backend, training=False)
    parts, clipped = lives(make, backend, training=True)
    # Breakout has five lives.
    assert len(parts) >= 4 * max(len(games), 1)
    assert max(points) >= 1.0
    assert 0 < max(clipped) <= 0.5


def test_settings_that_the_vector_version_lacks_are_refused():
    def options(**env):
        return atari_options(env_factory(env_settings(settings(**env))))

    found = options(wrapper={"stack": 2, "screen_size": 42, "frame_skip": 3})
    assert (found["stack_num"], found["img_height"], found["frameskip"]) == (2, 42, 3)
    assert found["repeat_action_probability"] == 0.0
    assert not found["reward_clipping"]
    assert options(wrapper={"grayscale_obs": False}) is None
    assert options(env_kwargs={"frameskip": 1, "mode": 1}) is None
    with pytest.raises(ConfigError, match="has no vector version, or wrappers are configured"):
        make_env_manager(settings(backend="native", wrapper={"scale_obs": True}), 1, 0)


@pytest.mark.slow
def test_it_is_fit_for_training_and_resumes_exactly(monkeypatch):
    # Its measurement loads the game another 28 times; other environments have one.
    monkeypatch.setattr(check, "_measure_speed", lambda *given: [])
    found = check_env(settings(max_episode_steps=160), steps=60)
    assert [each for each in found if each.level == "error"] == []
    assert "a running episode can be resumed exactly" in " ".join(each.text for each in found)
    assert describe_env(settings())["observation"]["shape"] == [4, 84, 84]
