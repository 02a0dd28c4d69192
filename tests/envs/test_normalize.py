"""The running scale of rewards, and the scales that are measured in the first steps of a run."""

import re

import numpy as np
import pytest
from gymnasium import spaces

from minding.configs import compile_run
from minding.engine.data import obs_trees
from minding.engine.data.observation import OBSERVATION
from minding.envs import make_collector_env
from minding.envs.config import env_settings
from minding.envs.normalize import REWARD, RewardScaler, ScaleMeter
from minding.envs.random_play import RandomPlay
from minding.envs.spaces.layout import ObsLayout


def test_rewards_are_divided_by_the_deviation_of_returns():
    scaler = RewardScaler((2,), gamma=0.5)
    # Returns: (0, 0) to begin with, (1, 3), then (2.5, 1.5).
    first = scaler(np.array([1.0, 3.0], np.float32), None)
    assert first.tolist() == pytest.approx([1.0 / np.sqrt(1.5), 3.0 / np.sqrt(1.5)])
    scaled = scaler(np.array([2.0, 0.0], np.float32), None)
    assert scaled.dtype == np.float32
    assert scaled.tolist() == pytest.approx([2.0 / np.std([0.0, 0.0, 1.0, 3.0, 2.5, 1.5]), 0.0])


@pytest.mark.parametrize("reward", [1.0, -1.0, 1e-7, 3e6])
@pytest.mark.parametrize("shape", [(1,), (16,), (2, 3)])
def test_equal_first_rewards_do_not_set_the_scale(reward, shape):
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


def test_ended_episodes_begin_a_new_return():
    scaler = RewardScaler((2,), gamma=1.0)
    scaler(np.array([1.0, 5.0], np.float32), None)
    scaler.forget(np.array([1]))
    scaler(np.array([1.0, 1.0], np.float32), np.array([True, False]))
    # Returns that count: the first two of 0, and 1, 5, 2; the invalid row has begun again.
    assert scaler.scale == pytest.approx(np.std([0.0, 0.0, 1.0, 5.0, 2.0]))
    assert scaler.state_dict()["returns"].tolist() == [2.0, 0.0]


# Scales in the first steps


def meter(num_envs=1, space=None, watch=(REWARD, OBSERVATION), **settings):
    space = spaces.Box(-1, 1, (2,), np.float32) if space is None else space
    return ScaleMeter(ObsLayout(space), num_envs, env_settings({"env_id": "x", **settings}), watch)


def measured(numbers, rewards=(0.0,), steps=100, **kwargs):
    made = meter(**kwargs)
    obs = np.array([numbers], np.float32)
    for step in range(steps):
        made.add(obs, np.float32([rewards[step % len(rewards)]]), np.zeros(1, bool))
    return made


@pytest.mark.parametrize(
    ("numbers", "trouble"),
    [
        ([1.0, 99.0], ""),
        ([0.0, -1.0], ""),
        ([0.5, -20_000.0], "observation[1] is of about 2e+04 beside observation[0] of about 0.5"),
        ([1e-4, 50.0], "observation[1] is of about 50 beside observation[0] of about 0.0001"),
        ([0.0, 101.0], "observation[1] is of about 1e+02, and"),
    ],
)
def test_large_or_very_different_observations_are_named(numbers, trouble):
    found = measured(numbers).observation_trouble()
    assert found.startswith(trouble)
    assert bool(found) == bool(trouble)


def test_only_numbers_that_a_network_takes_as_they_are_count():
    space = spaces.Dict(
        picture=spaces.Box(0, 255, (1, 2, 2), np.uint8),
        place=spaces.Discrete(1000),
        tank=spaces.Box(0, np.inf, (1, 2), np.float64),
    )
    made = meter(space=space)
    tree = {"picture": np.full((1, 1, 2, 2), 255, np.uint8), "place": np.array([900])}
    made.add(obs_trees.unflatten({**tree, "tank": np.float32([[[0, 300]]])}), np.zeros(1), np.zeros(1, bool))
    assert made.observation_trouble().startswith("observation 'tank'[0, 1] is of about 3e+02, and")


def test_rewards_are_large_if_returns_vary_by_a_thousand():
    # A constant reward r leads from r to 100 r with gamma 0.99: the returns of 100 steps vary by 18.5 r.
    assert measured([1, 1], rewards=[54.0]).troubles() == {}
    ((trouble, remedy),) = measured([1, 1], rewards=[55.0]).troubles().items()
    assert trouble.startswith("rewards are large, up to 55: discounted returns vary by 1.01e+03")
    assert remedy.startswith("set env.normalize_reward=true")
    # A rare reward of 100, as where a lander crashes, is none.
    assert measured([1, 1], rewards=[*[0.0] * 49, -100.0]).troubles() == {}
    for settings in ({"normalize_reward": True}, {"reward_clip": 1.0}, {"watch": (OBSERVATION,)}):
        assert measured([1, 1], rewards=[1e5], **settings).troubles() == {}


def warnings_of(caplog, algorithm, env_id, *settings, resumed=False):
    """The warnings about scales in 1,200 random steps of a run's environments."""
    cfg = compile_run(algorithm, [f"env.env_id={env_id}", "env.collector_env_num=4", *settings])
    manager = make_collector_env(cfg)
    play = RandomPlay(manager, cfg.env.spec)
    manager.reset()
    if resumed:
        manager.load_state_dict(manager.state_dict())
    caplog.clear()
    for _ in range(300):
        play.step()
    manager.close()
    return [message for message in caplog.messages if "slowly" in message]


def test_a_run_warns_once_of_large_numbers(caplog):
    (stock,) = warnings_of(caplog, "a2c", "worlds:Stock")
    assert re.search(r"worlds:Stock: rewards are large.*: set env.normalize_reward=true, .*; observation\[0\]", stock)
    assert "set policy.model.normalize_obs=true" in stock
    (queue,) = warnings_of(caplog, "a2c", "worlds:Queue")
    assert "rewards are large, up to 3.86e+05" in queue
    assert "normalize_obs" not in queue
    switches = ["env.normalize_reward=true", "policy.model.normalize_obs=true"]
    assert not warnings_of(caplog, "a2c", "worlds:Stock", *switches)
    assert not warnings_of(caplog, "ppo", "worlds:Stock")
    assert not warnings_of(caplog, "a2c", "worlds:Stock", resumed=True)


def test_algorithms_that_scale_by_themselves_do_not_warn(caplog):
    # The symlog of observations and rewards.
    assert not warnings_of(caplog, "dreamer", "worlds:Stock")
    # Rewards of a discriminator.
    (found,) = warnings_of(caplog, "gail", "worlds:Stock", "policy.other.data=nowhere")
    assert "normalize_reward" not in found


@pytest.mark.parametrize(
    "env_id",
    [
        "CartPole-v1", "Pendulum-v1", "LunarLander-v3", "Hopper-v5", "minding/PixelCatch-v0", "minding/TMaze-v0",
        "minding/DeepSea-v0", "minding/BitFlip-v0", "minding/PointReach-v0", "minding/RepeatPrevious-v0",
        "minding/MaskedGrid-v0",
    ],
)  # fmt: skip
def test_usual_tasks_do_not_warn(caplog, env_id):
    masked = ["env.info_keys=[action_mask]"] if "Masked" in env_id else []
    assert not warnings_of(caplog, "a2c", env_id, *masked)
