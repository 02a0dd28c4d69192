"""DeepMind Control, where the extra is installed: states, pictures, ends, seeds, worker processes."""

import numpy as np
import pytest

from minding.envs import check_env, describe_env, make_env_manager

suite = pytest.importorskip("minding.envs.single.dm_control", reason="needs the extra 'dmc'").suite
WALKER = "dm_control/walker-walk-v0"


def test_a_task_is_described_with_its_limits_and_its_length():
    described = describe_env({"env_id": WALKER})
    assert {key: space["shape"] for key, space in described["observation"]["spaces"].items()} == {
        "height": [], "orientations": [14], "velocity": [9],
    }  # fmt: skip
    assert described["action"]["shape"] == [6]
    assert described["max_episode_steps"] == 1000
    assert describe_env({"env_id": WALKER, "wrappers": ["flatten"]})["observation"]["shape"] == [24]


def test_it_steps_as_the_suite_itself_does():
    env = suite.load("walker", "walk", {"random": np.random.RandomState(7)})
    ours = suite_env("walker", "walk")
    obs, _ = ours.reset(seed=7)
    found = env.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert {key: value.tolist() for key, value in obs.items()} == {
            key: np.asarray(value).tolist() for key, value in found.observation.items()
        }
        action = rng.uniform(-1, 1, 6)
        found = env.step(action)
        obs, reward, *_ = ours.step(action)
        assert reward == found.reward


def suite_env(domain, task, **kwargs):
    import gymnasium

    return gymnasium.make(f"dm_control/{domain}-{task}-v0", **kwargs).unwrapped


def ends(domain, task, action, **kwargs):
    """How many steps a constant action takes, and how the episode ends."""
    env = suite_env(domain, task, **kwargs)
    env.reset(seed=0)
    for step in range(1, 2000):
        *_, terminated, truncated, _ = env.step(np.full(env.action_space.shape, action))
        if terminated or truncated:
            return step, terminated, truncated


def test_the_time_limit_truncates_and_failure_terminates():
    assert ends("cartpole", "balance", 0.0, time_limit=0.5) == (50, False, True)
    env = suite_env("cartpole", "balance", time_limit=0.5)
    assert env._max_episode_steps == 50
    # What a failure is to the suite: a discount of 0.
    env.reset(seed=0)
    env._env.task.get_termination = lambda physics: 0.0
    assert env.step(np.zeros(1))[2:4] == (True, False)


@pytest.mark.slow
def test_it_is_fit_for_training_and_resumes_exactly():
    found = check_env({"env_id": WALKER, "wrappers": ["flatten"], "max_episode_steps": 50}, steps=120)
    assert [each for each in found if each.level == "error"] == []
    texts = " ".join(each.text for each in found)
    assert "0 terminated, 2 truncated; time limit 50" in texts
    assert "passes Gymnasium's check_env" in texts
    assert "a running episode can be resumed exactly" in texts


def test_pictures_take_the_place_of_states():
    cfg = {
        "env_id": "dm_control/cartpole-swingup-v0",
        "env_kwargs": {"render_mode": "rgb_array", "height": 36, "width": 48},
        "wrappers": ["pixels", "channel_first", {"frame_stack": {"size": 2}}],
    }
    manager = make_env_manager(cfg, 1, 0)
    try:
        try:
            first = manager.reset()
        except Exception as error:
            pytest.skip(f"no way to render on this machine: {error}")
        assert (first.shape, first.dtype) == ((1, 6, 36, 48), np.uint8)
        assert first.std() > 1
        step = manager.step(np.ones((1, 1), np.float32))
        np.testing.assert_array_equal(step.obs[0, :3], first[0, 3:])
        assert (step.obs[0, 3:] != first[0, 3:]).any()
    finally:
        manager.close()
