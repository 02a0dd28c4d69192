"""Learning from recorded data: minibatches without an environment."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from minding.engine.chain.context import OfflineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.batch import IndexedBatch
from minding.engine.data.dataset import too_few
from minding.engine.errors import CheckpointError
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array, StateDict


class RecordedTables(Protocol):
    """Recorded data as rows to learn from, such as `engine.buffers.DatasetTables`."""

    @property
    def digest(self) -> str:
        """Digest of the data, which identifies them."""
        ...

    def __len__(self) -> int: ...

    def batch(self, index: Array, length: int = 0) -> IndexedBatch:
        """Minibatches of the steps with these numbers, ``(K, B)``; with a length, of the sequences that end with
        them."""
        ...


@declare(
    role="learn", reads=("train_iter", "train_epoch", "epoch_row"), writes=("train_data", "train_epoch", "epoch_row")
)
class offline_data_fetcher:
    """Draws the minibatches of the iteration; every pass over the data uses each step once, in a new order.

    All minibatches have the same size: a minibatch that reaches the end of a pass continues with the first steps of the
    next pass. The order of a pass follows from the seed and the number of the pass, so that a resumed run needs only
    the counters. The number of minibatches per iteration does not change their sequence. When fewer than that number
    are left before `run.max_train_iter` or `run.max_train_epoch`, iterations have one minibatch each, so that the run
    ends exactly there.

    For policies that learn from sequences, each drawn step is the last one of a sequence of `policy.learn.length` steps
    of its episode.

    Reads: train_iter, train_epoch, epoch_row.
    Writes: train_data (an `IndexedBatch`), train_epoch (whole passes), epoch_row (steps of the pass that have been
      drawn).
    Config: policy.learn.batch_size, policy.learn.steps_per_call, policy.learn.length, run.max_train_iter,
      run.max_train_epoch, seed.

    Args:
      cfg: the compiled configuration.
      tables: the recorded data, with the fields of the policy: ``DatasetTables(dataset, policy.learn_mode.fields)``.
    """

    def __init__(self, cfg: Config, tables: RecordedTables) -> None:
        self._cfg, self._tables = cfg, tables
        self._batch_size, self._steps_per_call = cfg.policy.learn.batch_size, cfg.policy.learn.steps_per_call
        self._length = cfg.policy.learn.length
        self._streams = SeedStreams(cfg.seed)
        self._order: tuple[int, Array] = (-1, np.empty(0, np.int64))

    @property
    def digest(self) -> str:
        """Digest of the training data."""
        return self._tables.digest

    def requirements(self) -> Sequence[str]:
        return too_few(len(self._tables), self._batch_size)

    def __call__(self, ctx: OfflineRLContext) -> None:
        updates = self._updates(ctx)
        rows = self._next_rows(ctx, updates * self._batch_size)
        rows = rows.reshape(updates, self._batch_size)
        ctx.train_data = self._tables.batch(rows, self._length) if self._length else self._tables.batch(rows)

    def _updates(self, ctx: OfflineRLContext) -> int:
        """The number of minibatches in this iteration."""
        run, left = self._cfg.run, []
        if run.max_train_iter is not None:
            left.append(run.max_train_iter - ctx.train_iter)
        if run.max_train_epoch is not None:
            rows = (run.max_train_epoch - ctx.train_epoch) * len(self._tables) - ctx.epoch_row
            left.append(-(-rows // self._batch_size))
        return 1 if any(0 < updates < self._steps_per_call for updates in left) else self._steps_per_call

    def _next_rows(self, ctx: OfflineRLContext, count: int) -> Array:
        """The indices of the next steps; advances the counters past them."""
        parts = []
        while count:
            part = self._order_of(ctx.train_epoch)[ctx.epoch_row : ctx.epoch_row + count]
            parts.append(part)
            count -= len(part)
            ctx.epoch_row += len(part)
            if ctx.epoch_row == len(self._tables):
                ctx.train_epoch, ctx.epoch_row = ctx.train_epoch + 1, 0
        return np.concatenate(parts)

    def _order_of(self, epoch: int) -> Array:
        """The order in which a pass takes the steps."""
        if self._order[0] != epoch:
            rng = self._streams.generator(f"offline_data_fetcher.{epoch}")
            self._order = epoch, rng.permutation(len(self._tables))
        return self._order[1]

    def state_dict(self) -> StateDict:
        return {"data": self._tables.digest}

    def load_state_dict(self, state: StateDict) -> None:
        """Only compares the data, and refuses others: the position of the run follows from the context."""
        if state["data"] != self._tables.digest:
            raise CheckpointError(
                "the checkpoint belongs to a run that learned from other data: set policy.other.data to the folder of "
                "that data, or start a new run"
            )
