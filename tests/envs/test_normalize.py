"""The reward scale."""

import numpy as np
import pytest

from minding.envs.normalize import RewardScaler


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    scaler = RewardScaler((2,), gamma=0.5)
    # Returns: (1, 3), then (2.5, 1.5): over all four, mean 2 and variance 0.625.
    assert scaler(np.array([1.0, 3.0], np.float32), None).tolist() == [1.0, 3.0]
    scaled = scaler(np.array([2.0, 0.0], np.float32), None)
    assert scaled.dtype == np.float32
    assert scaled.tolist() == pytest.approx([2.0 / np.sqrt(0.625), 0.0])


def test_ended_episodes_begin_a_new_return_and_invalid_rows_do_not_count():
    scaler = RewardScaler((2,), gamma=1.0)
    scaler(np.array([1.0, 5.0], np.float32), None)
    scaler.forget(np.array([1]))
    scaler(np.array([1.0, 1.0], np.float32), np.array([True, False]))
    # Returns that count: 1, 5, 2; the invalid row has begun again.
    assert scaler.scale == pytest.approx(np.std([1.0, 5.0, 2.0]))
    assert scaler.state_dict()["returns"].tolist() == [2.0, 0.0]


def test_the_statistics_survive_saving():
    first, second = RewardScaler((1,), 0.9), RewardScaler((1,), 0.9)
    for reward in (1.0, -2.0, 0.5):
        first(np.array([reward], np.float32), None)
    second.load_state_dict(first.state_dict())
    assert first(np.ones(1, np.float32), None) == second(np.ones(1, np.float32), None)
