"""Rewards of a model beside those of the environment."""

import dataclasses

import fakes
import numpy as np
import pytest
from fakes import CountingEnv

from minding.engine.types import RewardEstimate
from minding.middleware import reward_estimator


class Steps:
    """Rewards each step with its number in the rollout; counts the rollouts."""

    def __init__(self, shape=None):
        self.shape, self.count = shape, 0

    def estimate(self, rollout):
        self.count += 1
        steps = np.broadcast_to(np.arange(rollout.shape[0], dtype=np.float32)[:, None], rollout.shape)
        return RewardEstimate(steps if self.shape is None else np.zeros(self.shape, np.float32), {"rnd_loss": 0.5})

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@pytest.fixture
def collected(counting_config):
    return fakes.collected(counting_config("ppo"), CountingEnv())


def test_rewards_are_added_with_their_weight(collected):
    before = collected.trajectories
    reward_estimator(Steps(), 0.5)(collected)
    after = collected.trajectories
    assert (after.reward - before.reward)[:, 0].tolist() == [0.0, 0.5, 1.0, 1.5]
    assert after.reward.dtype == np.float32
    assert before.reward[0, 0] == 1.0
    assert [end.episode_return for end in collected.episode_stats] == [3.0, 6.0, 3.0]
    assert collected.train_output == {"rnd_loss": 0.5}


def test_environment_rewards_are_weighed_and_can_be_left_out(collected):
    before = collected.trajectories
    reward_estimator(Steps(), 0.5, own=0.0)(collected)
    assert collected.trajectories.reward.tolist() == [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0], [1.5, 1.5]]
    assert collected.trajectories.reward.dtype == np.float32
    assert [end.episode_return for end in collected.episode_stats] == [3.0, 6.0, 3.0]
    # Not even what a faulty environment gave is left of its own.
    collected.trajectories = dataclasses.replace(before, reward=np.full_like(before.reward, np.nan))
    reward_estimator(Steps(), 1.0, own=0.0)(collected)
    assert np.isfinite(collected.trajectories.reward).all()
    collected.trajectories = before
    reward_estimator(Steps(), 0.0, own=2.0)(collected)
    assert collected.trajectories.reward.tolist() == (2 * before.reward).tolist()


def test_what_the_model_says_stands_beside_what_others_said(collected):
    collected.train_output = {"loss": 1.0}
    reward_estimator(Steps(), 1.0)(collected)
    assert collected.train_output == {"loss": 1.0, "rnd_loss": 0.5}


def test_the_model_is_saved_with_it(collected):
    model, other = Steps(), Steps()
    middleware = reward_estimator(model, 1.0)
    middleware(collected)
    reward_estimator(other, 1.0).load_state_dict(middleware.state_dict())
    assert other.count == 1
