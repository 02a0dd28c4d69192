"""Pushes recorded data into a replay buffer, once."""

from __future__ import annotations

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.dataset import Dataset
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.types import Buffer, StateDict

_BLOCK = 1 << 16
"""Steps that are pushed at a time, so that the data are not in memory twice."""


@declare(role="learn")
class recorded_data_pusher:
    """Pushes all steps of recorded data into a buffer before the first iteration, and nothing afterwards.

    Use it for a part of a `MixedBuffer`, from which every minibatch takes its share. A resumed run pushes the data
    again, because checkpoints do not contain them; it refuses data that are not the run's own.

    Reads: nothing.
    Writes: nothing.
    Config: nothing.

    Args:
      buffer: the buffer that takes the steps; its capacity is at least their number.
      dataset: the recorded data, see `engine.data.dataset.load_dataset`.
      reward: constant that replaces the recorded rewards, as in imitation learning; None keeps these.
    Raises:
      ConfigError: the buffer is too small.
      DataError: the data lack a field of the buffer.
    """

    def __init__(self, buffer: Buffer, dataset: Dataset, reward: float | None = None) -> None:
        from minding.engine.buffers.recorded import check_fields

        count = len(dataset)
        if buffer.capacity < count:
            raise ConfigError(
                f"recorded_data_pusher: the buffer holds {buffer.capacity} steps, the data have {count}: make it larger"
            )
        check_fields(dataset, buffer.fields)
        self._digest = dataset.digest
        for start in range(0, count, _BLOCK):
            index = np.arange(start, min(start + _BLOCK, count))
            rows = dataset.rows(buffer.fields, index)
            if reward is not None:
                rows["reward"] = np.full(len(index), reward, np.float32)
            buffer.push(rows)

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Does nothing: the steps were pushed before the first iteration."""

    def state_dict(self) -> StateDict:
        return {"digest": self._digest}

    def load_state_dict(self, state: StateDict) -> None:
        """Refuses a run that learned from other data.

        Raises:
          CheckpointError: the run learned from other data.
        """
        if state["digest"] != self._digest:
            raise CheckpointError(
                "recorded_data_pusher: the run learned from other recorded data: give the folder that it started with"
            )
