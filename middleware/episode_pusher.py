"""Pushes whole episodes into the replay buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.engine.data.rollout import named_leaves
from minding.engine.types import Array, Buffer, StateDict
from minding.middleware.inputs import episodes_in


@declare(role="learn", reads=("episodes",))
class episode_pusher:
    """Pushes the steps of all episodes of an iteration into the buffer, with the fields that both have.

    The buffer's contents are saved with this middleware, unless ``policy.other.save_buffer`` is off: a resumed run then
    refills its buffer before it learns.

    Reads: episodes.
    Writes: nothing.
    Config: policy.other.save_buffer.

    Args:
      cfg: the compiled configuration.
      buffer: the buffer that takes the steps.
    """

    def __init__(self, cfg: Config, buffer: Buffer) -> None:
        self._buffer = buffer
        self._saves = bool(cfg.policy.other.save_buffer)

    @property
    def buffer(self) -> Buffer:
        """The buffer that this middleware fills."""
        return self._buffer

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

    @property
    def resume_guarantee(self) -> str:
        """Whether the buffer is saved."""
        return "exact" if self._saves else "without-buffer"

    def state_dict(self) -> StateDict:
        return {"buffer": self._buffer.state_dict() if self._saves else None}

    def load_state_dict(self, state: StateDict) -> None:
        if state["buffer"] is not None:
            self._buffer.load_state_dict(state["buffer"])


def _columns(episode: dict[str, Any]) -> dict[str, Array]:
    """The arrays of an episode by the names of row fields."""
    columns = {name: value for name, value in episode.items() if name != "obs"}
    return {**columns, **dict(named_leaves("obs", episode["obs"]))}
