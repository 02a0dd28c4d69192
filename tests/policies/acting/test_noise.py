"""Noise for exploration: its statistics, what it remembers of each environment, and the actor that adds it."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, env_action, space_of

from minding.policies.acting.actors import NoisyActor
from minding.policies.acting.sampling import GaussianNoise, OUNoise

SIGMA, THETA = 0.2, 0.15
ENVS, SIZE = 2000, 2


def rng(seed=0):
    return np.random.default_rng(seed)


def ou(owner="td3"):
    return OUNoise(SIGMA, THETA, SIZE, owner)


def path(noise, steps, draw, envs=ENVS):
    return np.stack([noise.draw((envs, SIZE), draw) for _ in range(steps)])


def test_each_step_follows_from_the_one_before():
    noise, draws = ou(), rng(3).standard_normal((3, 4, SIZE), dtype=np.float32)
    x = np.zeros((4, SIZE))
    for drawn, found in zip(draws, path(noise, 3, rng(3), envs=4)):
        x = (1 - THETA) * x + SIGMA * drawn
        np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-7)


def noisy(noise, output):
    spec = {"observation": VECTOR, "action": space_of(2, 1), "env_action": env_action(space_of(2, 1))}

    def network(leaves):
        return (np.full((len(leaves[0]), SIZE), output, np.float32),)

    return NoisyActor("noisy", network, spec, rng(), noise)


def test_only_collected_actions_have_noise_within_the_box():
    obs = np.zeros((4000, 4), np.float32)
    near = noisy(GaussianNoise(SIGMA), 0.25)
    drawn = near.collect(obs)["action"]
    assert (drawn.shape, drawn.dtype) == ((4000, 2, 1), np.float32)
    assert (drawn.mean(), drawn.std()) == (pytest.approx(0.25, abs=0.01), pytest.approx(SIGMA, rel=0.03))
    edge = noisy(GaussianNoise(SIGMA), 0.95).collect(obs)["action"]
    assert edge.max() == 1.0
    assert (edge == 1.0).mean() == pytest.approx(0.401, abs=0.03)
    assert np.array_equal(near.act(obs), np.full((4000, 2, 1), 0.25, np.float32))


def test_the_actor_resets_saves_and_restores_its_noise():
    obs = np.zeros((3, 4), np.float32)
    one, other = noisy(ou(), 0.0), noisy(ou(), 0.0)
    for _ in range(4):
        one.collect(obs)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert np.array_equal(one.collect(obs)["action"], other.collect(obs)["action"])
    one.reset([2])
    first, second = one.collect(obs)["action"], other.collect(obs)["action"]
    assert [np.array_equal(a, b) for a, b in zip(first, second)] == [True, True, False]
    one.reset()
    assert one.collect(obs[:2])["action"].shape == (2, 2, 1)
