"""The actions of the running episodes, from which environments are restored exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from minding.engine.types import Array

_INITIAL_STEPS = 512


class ActionLog:
    """Batches of actions since the oldest running episode began; one array write per step.

    Args:
      shape: shape of one batch, ``(N, ...)``.
      dtype: dtype of the actions.
      max_steps: length of the longest episode that is kept whole; bounds the memory if episodes never end.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, max_steps: int = 100_000) -> None:
        self._rows: Array = np.empty((min(_INITIAL_STEPS, max_steps), *shape), dtype)
        self._end = 0
        self._max_steps = max_steps
        # Index in the log at which each environment's episode began; negative once its start was dropped.
        self._start = np.zeros(shape[0], np.int64)

    def append(self, actions: Array) -> None:
        """Records one batch ``(N, ...)``."""
        if self._end == len(self._rows):
            self._make_room()
        self._rows[self._end] = actions
        self._end += 1

    def begin(self, envs: Any) -> None:
        """Records that a new episode begins in `envs` (an index, an index array, a mask or a slice)."""
        self._start[envs] = self._end

    def actions(self, env: int) -> Array | None:
        """Actions ``(steps, ...)`` of the running episode; None if it is too long to be kept whole."""
        start = int(self._start[env])
        return None if start < 0 else self._rows[start : self._end, env].copy()

    def restore(self, episodes: Sequence[Sequence[Any]]) -> None:
        """Replaces the log by the actions of each environment's running episode so far."""
        self._end = max(len(actions) for actions in episodes)
        rows = np.zeros((max(self._end, _INITIAL_STEPS), *self._rows.shape[1:]), self._rows.dtype)
        for env, actions in enumerate(episodes):
            self._start[env] = self._end - len(actions)
            if len(actions):
                rows[self._start[env] : self._end, env] = actions
        self._rows = rows

    def _make_room(self) -> None:
        """Drops actions that no running episode needs; if too few, grows, or at the limit drops the oldest half."""
        size = len(self._rows)
        dropped = max(int(self._start.min()), 0)
        if dropped < size // 2 and size >= self._max_steps:
            dropped = size // 2
        if dropped < size // 2:
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])[: self._max_steps]
            return
        self._rows[: size - dropped] = self._rows[dropped:].copy()
        self._end -= dropped
        self._start -= dropped
