"""The reward scale."""

import numpy as np
import pytest

from minding.envs.normalize import RewardScaler


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    scaler = RewardScaler((2,), gamma=0.5)
    # Returns: (0, 0) to begin with, (1, 3), then (2.5, 1.5).
    first = scaler(np.array([1.0, 3.0], np.float32), None)
    assert first.tolist() == pytest.approx([1.0 / np.sqrt(1.5), 3.0 / np.sqrt(1.5)])
    scaled = scaler(np.array([2.0, 0.0], np.float32), None)
    assert scaled.dtype == np.float32
    assert scaled.tolist() == pytest.approx([2.0 / np.std([0.0, 0.0, 1.0, 3.0, 2.5, 1.5]), 0.0])


@pytest.mark.parametrize("reward", [1.0, -1.0, 1e-7, 3e6])
@pytest.mark.parametrize("shape", [(1,), (16,), (2, 3)])
def test_environments_that_begin_with_equal_rewards_begin_on_the_scale_of_those_that_follow(reward, shape):
    scaler = RewardScaler(shape, gamma=1.0)
    scaled = [scaler(np.full(shape, reward, np.float32), None) for _ in range(3)]
    # Deviations of (0, 1), (0, 1, 2) and (0, 1, 2, 3), in units of the reward.
    for row, deviation in zip(scaled, [0.5, np.std([0, 1, 2]), np.std([0, 1, 2, 3])]):
        np.testing.assert_allclose(row, np.sign(reward) / deviation, rtol=1e-6)


def test_rewards_pass_unchanged_while_nothing_but_zero_was_met():
    scaler = RewardScaler((4,), gamma=0.99)
    for _ in range(1000):
        assert scaler(np.zeros(4, np.float32), None).tolist() == [0.0] * 4
    assert scaler.scale == 1.0


def test_ended_episodes_begin_a_new_return_and_invalid_rows_do_not_count():
    scaler = RewardScaler((2,), gamma=1.0)
    scaler(np.array([1.0, 5.0], np.float32), None)
    scaler.forget(np.array([1]))
    scaler(np.array([1.0, 1.0], np.float32), np.array([True, False]))
    # Returns that count: the first two of 0, and 1, 5, 2; the invalid row has begun again.
    assert scaler.scale == pytest.approx(np.std([0.0, 0.0, 1.0, 5.0, 2.0]))
    assert scaler.state_dict()["returns"].tolist() == [2.0, 0.0]


def test_the_statistics_survive_saving():
    first, second = RewardScaler((1,), 0.9), RewardScaler((1,), 0.9)
    for reward in (1.0, -2.0, 0.5):
        first(np.array([reward], np.float32), None)
    second.load_state_dict(first.state_dict())
    assert first(np.ones(1, np.float32), None) == second(np.ones(1, np.float32), None)
