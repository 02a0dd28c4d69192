"""Errors of recorded action values, by hand and against a loop."""

import dataclasses

import numpy as np
import pytest
from fakes import CountingEnv, CountingPolicy

from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.returns import nstep_errors, rescaled, unscaled
from minding.engine.errors import ChainError
from minding.middleware import StepCollector


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


def test_one_step_errors_by_hand(rollout):
    zero = dataclasses.replace(rollout, record={**rollout.record, "q_value": np.zeros((6, 2), np.float32)})
    found = nstep_errors(zero, n=1, gamma=0.5)
    # A state is worth 110 times its age: environment 0 comes to a true end with the fourth step, environment 1 to a
    # time limit with the third.
    assert found[:, 0].tolist() == [1 + 55, 2 + 110, 3 + 165, 4, 1 + 55, 2 + 110]
    assert found[:, 1].tolist() == [1 + 55, 2 + 110, 3 + 165, 1 + 55, 2 + 110, 3 + 165]


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_they_are_those_of_a_loop_within_trajectory_and_rollout(rollout, n, rescale):
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


def test_without_recorded_values_they_are_refused(rollout):
    del rollout.record["q_value"]
    with pytest.raises(ChainError, match=r"needs the values of the actions taken.*policy\.other\.replay=prioritized"):
        nstep_errors(rollout, n=1, gamma=0.9)
