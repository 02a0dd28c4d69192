"""Priorities of what was just collected, on their way into the buffer."""

import dataclasses

import numpy as np
import pytest
from fakes import COUNTING_FIELDS, AgePolicy, CountingEnv

from minding.engine.buffers import Priority, ReplayBuffer
from minding.engine.chain.context import OnlineRLContext
from minding.engine.errors import NonFiniteError, ShapeError
from minding.middleware import StepCollector, data_pusher, priority_calculator


@pytest.fixture
def collected(counting_config):
    ctx = OnlineRLContext()
    env = CountingEnv(lengths=(3, 2), reset_rows=True)
    StepCollector(counting_config(), AgePolicy(value=False).collect_mode, env)(ctx)
    return ctx


def test_the_buffer_takes_rows_with_what_the_function_adds(collected, counting_config):
    before = collected.trajectories
    priority_calculator(lambda rollout: 10.0 * rollout.reward + 1.0)(collected)
    assert "priority" not in before.record
    buffer = ReplayBuffer(20, COUNTING_FIELDS, priority=Priority(alpha=1.0))
    data_pusher(counting_config(), buffer)(collected)
    # Without the rows of resets.
    assert buffer.state_dict()["priorities"] == pytest.approx([11, 11, 21, 21, 31, 11])


def test_rows_of_resets_do_not_count(collected):
    rollout = collected.trajectories
    priority_calculator(lambda rollout: np.where(rollout.valid, 1.0, np.nan))(collected)
    assert np.isnan(collected.trajectories.record["priority"][~rollout.valid]).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, -0.5])
def test_a_priority_that_is_none_is_an_error_that_names_the_step(collected, number):
    priority = np.ones(collected.trajectories.shape)
    priority[1, 1] = number
    with pytest.raises(
        NonFiniteError, match=f"at least 0, got {number} for step 1 of environment 1 from priority_calc"
    ):
        priority_calculator(lambda rollout: priority)(collected)


def test_priorities_of_another_shape_are_refused(collected):
    collected.trajectories = dataclasses.replace(collected.trajectories)
    with pytest.raises(ShapeError, match=r"expected one priority per step, \(T, N\) = \(4, 2\), got \(2, 4\) from"):
        priority_calculator(lambda rollout: np.ones((2, 4)))(collected)
