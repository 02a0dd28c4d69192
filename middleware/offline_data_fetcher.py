"""Learning from recorded data: minibatches without an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OfflineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.dataset import Dataset, too_few
from minding.engine.errors import CheckpointError
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array, StateDict


@declare(
    role="learn",
    reads=("train_epoch", "epoch_row"),
    writes=("train_data", "train_epoch", "epoch_row"),
)
class offline_data_fetcher:
    """Draws the next minibatch of recorded data; every pass takes each step once, in an order of its own.

    All minibatches have the same size: one that reaches the end of a pass goes on with the first steps of the next. The
    order of a pass follows from the seed and its number, so that a resumed run needs only the counters.

    Reads: train_epoch, epoch_row.
    Writes: train_data (flat arrays), train_epoch (whole passes), epoch_row (steps of the pass that have been drawn).
    Config: policy.learn.batch_size, seed.

    Args:
      cfg: the compiled configuration.
      dataset: what was recorded, see `engine.data.dataset.load_dataset`.
    """

    def __init__(self, cfg: Any, dataset: Dataset) -> None:
        self._columns, self._steps, self._digest = dataset.columns(), len(dataset), dataset.digest
        self._batch_size = cfg.policy.learn.batch_size
        self._streams = SeedStreams(cfg.seed)
        self._valid = np.ones(self._batch_size, np.bool_)
        self._order: tuple[int, Array] = (-1, np.empty(0, np.int64))

    def requirements(self) -> Sequence[str]:
        """Anything that does not fit, as sentences for the chain check."""
        return too_few(self._steps, self._batch_size)

    def __call__(self, ctx: OfflineRLContext) -> None:
        """Draws a minibatch."""
        epoch, row = ctx.train_epoch, ctx.epoch_row + self._batch_size
        rows = self._order_of(epoch)[ctx.epoch_row : row]
        if row >= self._steps:
            epoch, row = epoch + 1, row - self._steps
            rows = np.concatenate([rows, self._order_of(epoch)[:row]])
        ctx.train_epoch, ctx.epoch_row = epoch, row
        ctx.train_data = {"valid": self._valid, **{name: values[rows] for name, values in self._columns.items()}}

    def _order_of(self, epoch: int) -> Array:
        """The order in which a pass takes the steps."""
        if self._order[0] != epoch:
            rng = self._streams.generator(f"offline_data_fetcher.{epoch}")
            self._order = epoch, rng.permutation(self._steps)
        return self._order[1]

    def state_dict(self) -> StateDict:
        return {"data": self._digest}

    def load_state_dict(self, state: StateDict) -> None:
        """Only compares: where the run is follows from the context.

        Raises:
          CheckpointError: the run has learned from other data so far.
        """
        if state["data"] != self._digest:
            raise CheckpointError(
                "the checkpoint is of a run that learned from other data: give policy.other.data the folder of those, "
                "or start a new run"
            )
