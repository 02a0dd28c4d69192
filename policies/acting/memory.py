"""The memory of a policy while it acts."""

from collections.abc import Sequence

import numpy as np

from minding.engine.errors import ShapeError
from minding.engine.types import Array, StateDict


class Memory:
    """One row of numbers for each environment, all zero at the start of an episode.

    The first observations after a full reset determine the number of environments.
    """

    def __init__(self, size: int, owner: str) -> None:
        self.size = size
        self._owner = owner
        self._rows: Array | None = None

    def rows(self, count: int) -> Array:
        """The memory of each of `count` environments, float32 ``(count, size)``; do not write to it."""
        if self._rows is None:
            self._rows = np.zeros((count, self.size), np.float32)
        if len(self._rows) != count:
            raise ShapeError(
                f"{self._owner} remembers {len(self._rows)} environments and was given {count} observations: pass one "
                "row per environment, always in the same order, or call reset() before acting in others"
            )
        return self._rows

    @property
    def newest(self) -> Array | None:
        """The current memory, ``(N, size)``; None before the first observations. Do not write to it."""
        return self._rows

    def write(self, rows: Array) -> None:
        self._rows = rows

    def forget(self, env_ids: Sequence[int] | Array | None) -> None:
        """Clears the memory of these environments; None: of all, after which their number may change."""
        if env_ids is None:
            self._rows = None
        elif self._rows is not None:
            self._rows[env_ids] = 0.0

    def state_dict(self) -> StateDict:
        return {"rows": None if self._rows is None else self._rows.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        rows = state["rows"]
        self._rows = None if rows is None else np.array(rows, np.float32)
