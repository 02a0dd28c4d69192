"""PixelCatch."""

import gymnasium
import numpy as np
import pytest

import minding.envs  # noqa: F401  registers the environment


@pytest.fixture
def env():
    return gymnasium.make("minding/PixelCatch-v0")


def column(image, value):
    return int(np.argwhere(image[0] == value)[:, 1].min()) // 3


def test_images_are_channel_first_bytes_with_ball_and_paddle(env):
    obs, _ = env.reset(seed=0)
    assert obs.shape == (1, 21, 21)
    assert obs.dtype == np.uint8
    assert (obs == 255).sum() == 9
    assert (obs == 128).sum() == 9
    assert column(obs, 128) == 3


def test_following_the_ball_always_catches_it(env):
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        total, steps, terminated = 0.0, 0, False
        while not terminated:
            towards = np.sign(column(obs, 255) - column(obs, 128))
            obs, reward, terminated, _, _ = env.step(1 + towards)
            total, steps = total + reward, steps + 1
        assert (total, steps) == (5.0, 30)


def test_the_paddle_stops_at_the_walls(env):
    env.reset(seed=0)
    images = [env.step(0)[0] for _ in range(5)]
    assert column(images[-1], 128) == 0
