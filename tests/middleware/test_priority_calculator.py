"""Priorities of what was just collected, on their way into the buffer."""

import numpy as np
import pytest
from fakes import COUNTING_FIELDS, AgePolicy, CountingEnv

from minding.engine.buffers import Priority, ReplayBuffer
from minding.engine.chain.context import OnlineRLContext
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
