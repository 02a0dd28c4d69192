"""Pushes collected rollouts into the replay buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.types import Array, Buffer, StateDict
from minding.middleware.inputs import rollout_in


@declare(role="learn", reads=("trajectories",), leaves=("trajectories.used",))
class data_pusher:
    """Pushes the rollout's transitions into the buffer; rows in which an environment was reset are left out.

    A buffer of sequences, or a buffer that stores each image once, also gets the order of the rows.

    The buffer's contents are saved with this middleware, unless ``policy.other.save_buffer`` is off: a resumed run then
    refills its buffer before it learns. The number of minibatches drawn, on which `beta` of a buffer that draws by
    priority depends, is always saved.

    Reads: trajectories.
    Writes: nothing.
    Config: policy.other.save_buffer.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the transitions.
    """

    def __init__(self, cfg: Config, buffer: Buffer) -> None:
        self._buffer = buffer
        self._ordered = bool(getattr(buffer, "takes_order", False))
        self._saves = bool(cfg.policy.other.save_buffer)

    @property
    def buffer(self) -> Buffer:
        """The buffer that this middleware fills."""
        return self._buffer

    @property
    def bounded(self) -> bool:
        """Whether the buffer has a limiter that may forbid a push, see `Table`."""
        return bool(getattr(self._buffer, "bounded", False))

    def cannot_take(self, rollouts: Sequence[Rollout]) -> str | None:
        """Why the limiter of the buffer refuses the rows of these rollouts now; None if it accepts them."""
        count = sum(int(rollout.transitions().sum()) for rollout in rollouts)
        table: Any = self._buffer
        if table.can_insert(count):
            return None
        return f"data_pusher may not insert a rollout of {count} rows ({table.standing()})"

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the rollout of an iteration."""
        self.push(rollout_in(ctx, "data_pusher"))

    def push(self, rollout: Rollout) -> None:
        """Pushes a rollout."""
        rows = transitions(rollout)
        self._buffer.push({**rows, **sequence_columns(rollout)} if self._ordered else rows)

    @property
    def resume_guarantee(self) -> str:
        """Whether the buffer is saved."""
        return "exact" if self._saves else "without-buffer"

    def state_dict(self) -> StateDict:
        return {
            "buffer": self._buffer.state_dict() if self._saves else None,
            "drawn": getattr(self._buffer, "drawn", None),
        }

    def load_state_dict(self, state: StateDict) -> None:
        if state["buffer"] is not None:
            self._buffer.load_state_dict(state["buffer"])
        elif state["drawn"] is not None:
            buffer: Any = self._buffer
            buffer.drawn = int(state["drawn"])


def sequence_columns(rollout: Rollout) -> dict[str, Array]:
    """The additional columns of a buffer that knows the order of its rows.

    They are flat arrays ``(n,)``, for the same rows as `transitions`.
    """
    envs = rollout.shape[1]
    columns = {
        "sequence": np.broadcast_to(rollout.collector * envs + np.arange(envs), rollout.shape),
        "begun": rollout.begun(),
        "ended": rollout.terminated | rollout.truncated,
        "steps": _steps_ahead(rollout),
    }
    keep = rollout.transitions().reshape(-1)
    return {name: column.reshape(-1)[keep] for name, column in columns.items()}


def _steps_ahead(rollout: Rollout) -> Array:
    """The number of steps from each row to its successor, int64 ``(T, N)``."""
    if rollout.bootstrap_row is None:
        return np.ones(rollout.shape, np.int64)
    ahead: Array = rollout.bootstrap_row - np.arange(rollout.shape[0])[:, None] + 1
    return ahead


def transitions(rollout: Rollout) -> dict[str, Array]:
    """The transitions of a rollout that are ready, as flat arrays ``(n, ...)``, ordered by time, then environment.

    `columns_of` describes the fields.
    """
    steps, envs = rollout.shape
    columns = columns_of(rollout)
    flat = {name: value.reshape(steps * envs, *value.shape[2:]) for name, value in columns.items()}
    if rollout.valid is not None or rollout.ready is not None:
        keep = rollout.transitions().reshape(-1)
        flat = {name: value[keep] for name, value in flat.items()}
    return flat


def columns_of(rollout: Rollout) -> dict[str, Array]:
    """The fields of all rows of a rollout, ``(T, N, ...)``.

    The successor and `terminated` are taken from the row that `rollout.bootstrap_row` names (n-step returns). Declared
    info is under ``info.<key>``.
    """
    next_obs, terminated = rollout.next_obs(), rollout.terminated
    info = {f"info.{name}": values for name, values in rollout.info.items()}
    columns: dict[str, Array] = {"action": rollout.action, "reward": rollout.reward, **rollout.record, **info}
    successors = dict(named_leaves("next_obs", next_obs))
    if rollout.bootstrap_row is not None:
        rows = (rollout.bootstrap_row, np.arange(rollout.shape[1])[None, :])
        terminated = terminated[rows]
        successors = {name: leaf[rows] for name, leaf in successors.items()}
    columns.update(successors)
    columns.update(named_leaves("obs", rollout.obs))
    columns["terminated"] = terminated
    return columns
