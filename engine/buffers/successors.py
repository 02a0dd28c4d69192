"""The places of the successors of the rows of a ring."""

from __future__ import annotations

import numpy as np

from minding.engine.buffers.links import Links
from minding.engine.types import Array, StateDict


class Successors:
    """For each row the place of its successor's observation.

    This is the place of the following row, once that is stored. Until then, and always for a row that has no following
    row, such as the last of an episode, the observation has a spare place after the ring. Rows with the same successor
    share it.

    Args:
      links: the order of rows.
      capacity: number of rows in the ring.

    Attributes:
      place: int32 ``(capacity,)``, indexed by the place of the row.
      spare: number of spare places; they begin at `capacity`.
    """

    def __init__(self, links: Links, capacity: int) -> None:
        self._links, self._capacity = links, capacity
        self.place = np.zeros(capacity, np.int32)
        self.spare = 0
        # For each spare place, the number of rows whose successor it holds.
        self._users = np.zeros(0, np.int64)
        # Rows that wait for a following row, with the number of steps to it.
        self._open, self._steps = np.zeros((2, 0), np.int64)

    def grow(self, spare: int) -> None:
        """Adds spare places."""
        self._users = np.concatenate([self._users, np.zeros(spare - self.spare, np.int64)])
        self.spare = spare

    @property
    def num_free(self) -> int:
        """The number of spare places that no row uses."""
        return int((self._users == 0).sum())

    def release(self, rows: Array) -> None:
        """Forgets rows that are about to be overwritten."""
        self._leave(rows % self._capacity)
        kept = ~np.isin(self._open, rows)
        self._open, self._steps = self._open[kept], self._steps[kept]

    def add(self, rows: Array, steps: Array) -> tuple[Array, Array]:
        """Looks up the successors of new rows, and of the rows that waited for them.

        Args:
          rows: numbers of the new rows, already added to `links`.
          steps: number of steps to the successor of each.

        Returns:
          (rows whose successor is not stored, as positions in `rows`; for each the number of its new spare place,
          which rows with the same successor share).
        """
        waiting, left = np.concatenate([self._open, rows]), np.concatenate([self._steps, steps])
        reached, left_over = self._links.ahead(waiting, left)
        found = left_over == 0
        places = waiting[found] % self._capacity
        self._leave(places[: int(found[: len(self._open)].sum())])
        self.place[places] = reached[found] % self._capacity
        fresh = ~found
        fresh[: len(self._open)] = False
        going = ~found & self._links.running(reached)
        self._open, self._steps = waiting[going], left[going]
        same = np.stack([reached[fresh], left_over[fresh]], axis=1)
        _, number = np.unique(same, axis=0, return_inverse=True)
        return np.flatnonzero(fresh[-len(rows) :]), number.reshape(-1)

    def occupy(self, rows: Array, number: Array) -> Array:
        """Assigns spare places after the ring to rows, one per number; returns them in the order of the numbers."""
        free = np.flatnonzero(self._users == 0)[: number.max(initial=-1) + 1]
        self.place[rows % self._capacity] = self._capacity + free[number]
        np.add.at(self._users, free[number], 1)
        spare: Array = self._capacity + free
        return spare

    def used(self) -> Array:
        """The spare places that rows use."""
        used: Array = self._capacity + np.flatnonzero(self._users)
        return used

    def _leave(self, places: Array) -> None:
        """Frees the spare places of the rows at these places of the ring."""
        spare = self.place[places] - self._capacity
        np.subtract.at(self._users, spare[spare >= 0], 1)
        self.place[places] = 0

    def state_dict(self, rows: int) -> StateDict:
        """State of a ring that holds that many rows."""
        return {"spare": self.spare, "place": self.place[:rows].copy(), "open": self._open, "steps": self._steps}

    def load_state_dict(self, state: StateDict) -> None:
        place = np.asarray(state["place"])
        self.place[:] = 0
        self.place[: len(place)] = place
        self.spare = int(state["spare"])
        self._users = np.bincount(place[place >= self._capacity] - self._capacity, minlength=self.spare)
        self._open, self._steps = (np.array(state[name], np.int64) for name in ("open", "steps"))
