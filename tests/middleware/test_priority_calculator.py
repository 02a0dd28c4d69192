"""Priorities of what was just collected, on their way into the buffer."""

import numpy as np
import pytest
from fakes import COUNTING_FIELDS, CountingEnv, collected

from minding.engine.buffers import Priority, ReplayBuffer
from minding.middleware import data_pusher, priority_calculator


def test_the_buffer_takes_rows_with_what_the_function_adds(counting_config):
    ctx = collected(counting_config(), CountingEnv(reset_rows=True))
    before = ctx.trajectories
    priority_calculator(lambda rollout: 10.0 * rollout.reward + 1.0)(ctx)
    assert "priority" not in before.record
    buffer = ReplayBuffer(20, COUNTING_FIELDS, priority=Priority(alpha=1.0))
    data_pusher(counting_config(), buffer)(ctx)
    # Without the rows of resets.
    assert buffer.state_dict()["priorities"] == pytest.approx([11, 11, 21, 21, 31, 11])


def test_rows_of_resets_do_not_count(counting_config):
    ctx = collected(counting_config(), CountingEnv(reset_rows=True))
    rollout = ctx.trajectories
    priority_calculator(lambda rollout: np.where(rollout.valid, 1.0, np.nan))(ctx)
    assert np.isnan(ctx.trajectories.record["priority"][~rollout.valid]).all()
