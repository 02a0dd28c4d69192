"""PointReach: how the point moves, and the rules for any goals."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import minding.envs  # noqa: F401 - registers it


@pytest.fixture
def env():
    return gymnasium.make("minding/PointReach-v0")


def test_it_is_an_environment_of_gymnasiums(env):
    check_env(env.unwrapped, skip_render_check=True)


def test_a_force_moves_the_point_as_the_formula_says(env):
    obs, _ = env.reset(seed=0)
    place, velocity = obs["achieved_goal"].astype(float), np.zeros(2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        velocity = 0.7 * velocity + 0.03 * action
        place = place + velocity
        assert np.abs(place).max() < 1
        obs, *_ = env.step(action)
        np.testing.assert_allclose(obs["achieved_goal"], place, atol=1e-6)
        np.testing.assert_allclose(obs["observation"], [*place, *velocity / 0.1], atol=1e-5)


def test_a_wall_stops_the_point_in_its_direction_only(env):
    env.reset(seed=0)
    for _ in range(40):
        obs, *_ = env.step(np.float32([1.0, 0.1]))
    assert obs["observation"][0] == 1.0
    assert obs["observation"][2] == 0.0
    np.testing.assert_allclose(obs["observation"][3], 0.1, atol=1e-5)


def drive(env, seed):
    """Brakes and accelerates towards the goal; returns the rewards and how the episode ended."""
    obs, _ = env.reset(seed=seed)
    rewards = []
    while True:
        speed = obs["observation"][2:] * 0.1
        # Where the point would come to rest, from now on without a force.
        rest = obs["achieved_goal"] + speed * 0.7 / 0.3
        force = np.clip((obs["desired_goal"] - rest) * 0.3 / 0.03, -1, 1).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(force)
        rewards.append(reward)
        assert reward == env.unwrapped.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
        assert info["is_success"] == terminated
        if terminated or truncated:
            return rewards, terminated, truncated


def test_a_controller_reaches_every_goal_in_time_and_that_ends_the_episode(env):
    for seed in range(50):
        rewards, terminated, truncated = drive(env, seed)
        assert (terminated, truncated) == (True, False)
        assert rewards == [-1.0] * (len(rewards) - 1) + [0.0]


def test_the_rules_take_one_goal_or_many(env):
    rules, goals = env.unwrapped, np.float32([[0.0, 0.0], [0.03, 0.039], [0.04, 0.04]])
    assert rules.compute_reward(goals, goals[0], {}).tolist() == [0.0, 0.0, -1.0]
    assert rules.compute_terminated(goals, goals[:1], {}).tolist() == [True, True, False]
    assert rules.compute_reward(goals, goals, {}).dtype == np.float32
    assert rules.compute_reward(goals[0], goals[2], {}) == -1.0


@pytest.mark.parametrize("tolerance", [0.0, 1.0, float("nan")])
def test_a_tolerance_that_makes_no_sense_is_refused(tolerance):
    with pytest.raises(ValueError, match=r"tolerance=.*: expected more than 0"):
        gymnasium.make("minding/PointReach-v0", tolerance=tolerance)
