"""BitFlip: the game, and its rules for any goals."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import minding.envs  # noqa: F401 - registers it


@pytest.fixture
def env():
    return gymnasium.make("minding/BitFlip-v0", bits=5)


def test_it_is_an_environment_of_gymnasiums(env):
    check_env(env.unwrapped, skip_render_check=True)


def test_an_action_flips_its_bit_and_the_goal_ends_the_episode(env):
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        wrong = np.flatnonzero(obs["observation"] != obs["desired_goal"])
        assert len(wrong) > 0
        for k, bit in enumerate(wrong):
            before = obs["achieved_goal"].copy()
            obs, reward, terminated, truncated, _ = env.step(bit)
            assert np.flatnonzero(before != obs["achieved_goal"]).tolist() == [bit]
            last = k == len(wrong) - 1
            assert (reward, terminated) == (0.0 if last else -1.0, last)
            assert truncated == (k == 4)


def test_the_rules_take_one_goal_or_many(env):
    goals = np.array([[1, 0, 1, 0, 0], [1, 1, 1, 0, 0]], np.float32)
    rules = env.unwrapped
    assert rules.compute_reward(goals, goals[:1], {}).tolist() == [0.0, -1.0]
    assert rules.compute_terminated(goals, goals[1], {}).tolist() == [False, True]
    assert rules.compute_reward(goals[0], goals[0], {}) == 0.0


@pytest.mark.parametrize("bits", [0, 10**9])
def test_no_bits_and_too_many_are_refused(bits):
    with pytest.raises(ValueError, match=f"bits={bits}: expected 1 to 10,000"):
        gymnasium.make("minding/BitFlip-v0", bits=bits)
