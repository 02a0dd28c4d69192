"""Pushes rollouts, whole episodes and recorded data into a replay buffer."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.dataset import Dataset
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.types import Array, FilledBuffer, StateDict
from minding.middleware.ctx_fields import episodes_in, rollout_in

_BLOCK = 1 << 16
"""Recorded steps that are pushed at a time, so that the data are not in memory twice."""


class Pusher:
    """The buffer of a middleware that pushes into it, and what is saved of the two.

    The buffer's contents are saved with the middleware, unless ``policy.other.save_buffer`` is off: a resumed run then
    refills its buffer before it learns.
    """

    def __init__(self, cfg: Config, buffer: FilledBuffer) -> None:
        self._buffer = buffer
        self._saves = bool(cfg.policy.other.save_buffer)

    @property
    def buffer(self) -> FilledBuffer:
        """The buffer that this middleware fills."""
        return self._buffer

    @property
    def resume_guarantee(self) -> str:
        """Whether the buffer is saved."""
        return "exact" if self._saves else "without-buffer"

    def state_dict(self) -> StateDict:
        return {"buffer": self._buffer.state_dict() if self._saves else None}

    def load_state_dict(self, state: StateDict) -> None:
        if state["buffer"] is not None:
            self._buffer.load_state_dict(state["buffer"])


@declare(role="learn", reads=("trajectories",), leaves=("trajectories.used",))
class data_pusher(Pusher):
    """Pushes the rollout's transitions into the buffer; rows in which an environment was reset are left out.

    A buffer of sequences, or a buffer that stores each image once, also gets the order of the rows.

    The contents of the buffer are saved, see `Pusher`. The number of minibatches drawn, on which `beta` of a buffer
    that draws by priority depends, is always saved.

    Reads: trajectories.
    Config: policy.other.save_buffer.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the transitions.
    """

    @property
    def bounded(self) -> bool:
        """Whether the buffer has a limiter that may forbid a push, see `Table`."""
        return self._buffer.bounded

    def cannot_insert(self, rollouts: Sequence[Rollout]) -> str | None:
        """Why the limiter of the buffer refuses the rows of these rollouts now; None if it accepts them."""
        count = sum(int(rollout.transitions().sum()) for rollout in rollouts)
        if self._buffer.can_insert(count):
            return None
        return f"data_pusher may not insert a rollout of {count} rows ({self._buffer.status()})"

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the rollout of an iteration."""
        self.push(rollout_in(ctx, "data_pusher"))

    def push(self, rollout: Rollout) -> None:
        rows = transitions(rollout)
        self._buffer.push({**rows, **sequence_columns(rollout)} if self._buffer.takes_order else rows)

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "drawn": self._buffer.minibatches}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if state["buffer"] is None and state["drawn"] is not None:
            self._buffer.minibatches = int(state["drawn"])


pushes_plain_rewards = declare(
    role="learn",
    reads=("trajectories",),
    leaves=("trajectories.used",),
    refuses=("trajectories.summed", "trajectories.rewarded"),
)


@pushes_plain_rewards
class sqil_data_pusher(data_pusher):
    """Pushes the rollout's transitions with a reward of 1 if an expert acted, and of 0 if the agent did.

    Soft Q imitation learning (Reddy et al., 2020, https://arxiv.org/abs/1905.11108, algorithm 1). Transitions of the
    expert make up half of every minibatch: push expert and agent into two parts of a `MixedBuffer`. The rewards of the
    environment stay in the context, but no policy learns from them.

    Reads: trajectories.
    Config: policy.learn.nstep (1), policy.other.save_buffer.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the transitions; it is saved with this middleware.
      expert: whether an expert acts in the rollout.
    """

    def __init__(self, cfg: Config, buffer: FilledBuffer, expert: bool) -> None:
        super().__init__(cfg, buffer)
        self._reward = float(expert)
        self._nstep = cfg.policy.learn.nstep

    def requirements(self) -> Sequence[str]:
        if self._nstep == 1:
            return []
        return [
            f"policy.learn.nstep={self._nstep} sums rewards of the environment, which sqil_data_pusher replaces: use 1"
        ]

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the rollout of an iteration."""
        rollout = rollout_in(ctx, "sqil_data_pusher")
        self.push(dataclasses.replace(rollout, reward=np.full_like(rollout.reward, self._reward)))


@declare(role="learn", reads=("episodes",))
class episode_pusher(Pusher):
    """Pushes the steps of all episodes of an iteration into the buffer, with the fields that both have.

    The contents of the buffer are saved, see `Pusher`.

    Reads: episodes.
    Config: policy.other.save_buffer.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the steps.
    """

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the episodes of an iteration."""
        episodes = [_columns(episode) for episode in episodes_in(ctx, "episode_pusher")]
        if not episodes:
            return
        names = [name for name in episodes[0] if name in self._buffer.fields]
        rows = {name: np.concatenate([each[name] for each in episodes]) for name in names}
        count, most = len(rows[names[0]]), self._buffer.capacity
        for start in range(0, count, most):
            self._buffer.push({name: values[start : start + most] for name, values in rows.items()})


@declare(role="learn")
class recorded_data_pusher:
    """Pushes all steps of recorded data into a buffer in the first iteration, and nothing afterwards.

    Use it for a part of a `MixedBuffer`, from which every minibatch takes its share. A resumed run stores the data
    again, because checkpoints do not contain them; it refuses data that are not the run's own.

    Args:
      buffer: the buffer that takes the steps; its capacity is at least their number.
      dataset: the recorded data, see `engine.data.dataset.load_dataset`.
      reward: constant that replaces the recorded rewards, as in imitation learning; None keeps these.
    Raises:
      ConfigError: the buffer is too small.
      DataError: the data lack a field of the buffer.
    """

    def __init__(self, buffer: FilledBuffer, dataset: Dataset, reward: float | None = None) -> None:
        from minding.engine.buffers.dataset_rows import check_fields

        count = len(dataset)
        if buffer.capacity < count:
            raise ConfigError(
                f"recorded_data_pusher: the buffer holds {buffer.capacity} steps, the data have {count}: make it larger"
            )
        check_fields(dataset, buffer.fields)
        self._buffer, self._digest, self._reward = buffer, dataset.digest, reward
        # The steps that are not in the buffer yet.
        self._missing: Dataset | None = dataset

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Pushes the steps in the first iteration."""
        self._fill(self._buffer.push)

    def _fill(self, push: Callable[[Mapping[str, Array]], None]) -> None:
        dataset, self._missing = self._missing, None
        for start in range(0, 0 if dataset is None else len(dataset), _BLOCK):
            assert dataset is not None
            index = np.arange(start, min(start + _BLOCK, len(dataset)))
            rows = dataset.rows(self._buffer.fields, index)
            if self._reward is not None:
                rows["reward"] = np.full(len(index), self._reward, np.float32)
            push(rows)

    def state_dict(self) -> StateDict:
        return {"digest": self._digest}

    def load_state_dict(self, state: StateDict) -> None:
        """Stores the steps again; refuses a run that learned from other data."""
        if state["digest"] != self._digest:
            raise CheckpointError(
                "recorded_data_pusher: the run learned from other recorded data: give the folder that it started with"
            )
        self._fill(self._buffer.store)


def sequence_columns(rollout: Rollout) -> dict[str, Array]:
    """The additional columns of a buffer that knows the order of its rows: flat arrays ``(n,)``, for the same rows as
    `transitions`."""
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
    """The transitions of a rollout that are ready, as flat arrays ``(n, ...)`` of the fields of `columns_of`, ordered
    by time, then environment."""
    steps, envs = rollout.shape
    columns = columns_of(rollout)
    flat = {name: value.reshape(steps * envs, *value.shape[2:]) for name, value in columns.items()}
    if rollout.valid is not None or rollout.ready is not None:
        keep = rollout.transitions().reshape(-1)
        flat = {name: value[keep] for name, value in flat.items()}
    return flat


def columns_of(rollout: Rollout) -> dict[str, Array]:
    """The fields of all rows of a rollout, ``(T, N, ...)``. The successor and `terminated` are taken from the row that
    `rollout.bootstrap_row` names (n-step returns). Declared info is under ``info.<key>``."""
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


def _columns(episode: dict[str, Any]) -> dict[str, Array]:
    """The arrays of an episode by the names of row fields."""
    columns = {name: value for name, value in episode.items() if name != "obs"}
    return {**columns, **dict(named_leaves("obs", episode["obs"]))}
