"""Advantages, n-step returns and errors, against slow loops in float64 and numbers worked out by hand."""

import dataclasses

import numpy as np
import pytest
from fakes import CountingEnv, CountingPolicy

from minding.engine import ChainError, OnlineRLContext
from minding.engine.data.returns import gae, nstep, nstep_errors, rescaled, reverse_scan, unscaled
from minding.middleware import StepCollector


def loop_gae(reward, value, next_value, terminated, cut, gamma, gae_lambda):
    steps, envs = reward.shape
    advantage = np.zeros((steps, envs))
    for n in range(envs):
        later = 0.0
        for t in reversed(range(steps)):
            bootstrap = 0.0 if terminated[t, n] else float(next_value[t, n])
            delta = float(reward[t, n]) + gamma * bootstrap - float(value[t, n])
            later = delta if cut[t, n] else delta + gamma * gae_lambda * later
            advantage[t, n] = later
    return advantage


def loop_nstep(reward, cut, n, gamma):
    steps, envs = reward.shape
    total, last, discount = np.zeros((steps, envs)), np.zeros((steps, envs), int), np.ones((steps, envs))
    for e in range(envs):
        for t in range(steps):
            for k in range(t, min(t + n, steps)):
                total[t, e] += discount[t, e] * reward[k, e]
                discount[t, e] *= gamma
                last[t, e] = k
                if cut[k, e]:
                    break
    return total, last, discount


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13, 128])
def test_reverse_scan_equals_the_loop_at_every_length(steps):
    rng = np.random.default_rng(steps)
    delta, decay = rng.standard_normal((2, steps, 3))
    y, expected = np.zeros(3), []
    for t in reversed(range(steps)):
        y = delta[t] + decay[t] * y
        expected.append(y)
    found = reverse_scan(delta.astype(np.float32), decay)
    assert found.dtype == np.float64
    np.testing.assert_allclose(reverse_scan(delta, decay), expected[::-1], rtol=1e-10, atol=1e-10)


def check_gae(seed, terminated, cut, shape, reward):
    """Compares with the loop, for each agent where there are several."""
    rng = np.random.default_rng(seed)
    value, next_value = rng.standard_normal((2, *shape)).astype(np.float32)
    reward = rng.standard_normal(reward or shape).astype(np.float32)
    found = gae(reward, value, next_value, terminated, cut, gamma=0.97, gae_lambda=0.9)
    assert found.dtype == np.float32
    for m in np.ndindex(shape[2:]):
        own = [x if x.ndim == 2 else x[(..., *m)] for x in (reward, value, next_value, terminated, cut)]
        expected = loop_gae(*own, 0.97, 0.9)
        np.testing.assert_allclose(found[(..., *m)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "ends", "reward"),
    [
        ((200, 7), (200, 7), None),
        *(((40, 3, 4), ends, reward) for ends in ((40, 3), (40, 3, 4)) for reward in (None, (40, 3))),
    ],
)
def test_gae_equals_the_loop_with_many_ends_and_for_each_agent(shape, ends, reward):
    rng = np.random.default_rng(5)
    terminated = rng.random(ends) < 0.1
    check_gae(6, terminated, terminated | (rng.random(ends) < 0.1), shape, reward)


@pytest.mark.parametrize("agents", [(), (2,)])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_nstep_equals_the_loop(n, agents):
    rng = np.random.default_rng(n)
    reward = rng.standard_normal((12, 5, *agents)).astype(np.float32)
    cut = rng.random((12, 5)) < 0.2
    found = nstep(reward, cut, n=n, gamma=0.9)
    for m in np.ndindex(agents):
        for array, expected in zip(found, loop_nstep(reward[(..., *m)], cut, n, 0.9)):
            np.testing.assert_allclose(array[(..., *m)], expected, rtol=1e-6, atol=1e-6)


# Errors of recorded action values


@pytest.fixture
def rollout(counting_config):
    """Six steps: environment 0 ends truly after three, environment 1 by a time limit after two; rewards are ages."""
    ctx = OnlineRLContext()
    collector = StepCollector(
        counting_config(**{"policy.collect.n_sample": 12}), CountingPolicy().collect_mode, CountingEnv(lengths=(4, 3))
    )
    collector(ctx)
    q_value = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
    found = ctx.trajectories
    return dataclasses.replace(found, record={**found.record, "q_value": q_value})


def test_one_step_errors_by_hand_need_recorded_values(rollout):
    zero = dataclasses.replace(rollout, record={**rollout.record, "q_value": np.zeros((6, 2), np.float32)})
    found = nstep_errors(zero, n=1, gamma=0.5)
    # A state is worth 110 times its age: environment 0 comes to a true end with the fourth step, environment 1 to a
    # time limit with the third.
    assert found[:, 0].tolist() == [1 + 55, 2 + 110, 3 + 165, 4, 1 + 55, 2 + 110]
    assert found[:, 1].tolist() == [1 + 55, 2 + 110, 3 + 165, 1 + 55, 2 + 110, 3 + 165]
    del rollout.record["q_value"]
    with pytest.raises(ChainError, match=r"needs the values of the actions taken.*policy\.other\.replay=prioritized"):
        nstep_errors(rollout, n=1, gamma=0.9)


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_errors_equal_a_loop_within_trajectory_and_rollout(rollout, n, rescale):
    following, gamma = rollout.next_value().astype(np.float64), 0.9
    expected = np.zeros((6, 2))
    for t, env in np.ndindex(6, 2):
        total, k = 0.0, 0
        while True:
            total += gamma**k * rollout.reward[t + k, env]
            over = rollout.terminated[t + k, env] or rollout.truncated[t + k, env]
            k += 1
            if over or k == n or t + k == 6:
                break
        value = following[t + k - 1, env]
        value = gamma**k * (unscaled(value) if rescale else value) * (not rollout.terminated[t + k - 1, env])
        target = rescaled(total + value) if rescale else total + value
        expected[t, env] = abs(target - rollout.record["q_value"][t, env])
    np.testing.assert_allclose(nstep_errors(rollout, n=n, gamma=gamma, rescale=rescale), expected, rtol=1e-5)
