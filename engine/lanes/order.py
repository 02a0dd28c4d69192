"""The orders in which iterations take the rollouts of collectors; each holds the requests that are under way.

Each S collectors that share an iteration form a row, and a request goes to all collectors of a row.
"""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

from minding.engine.data.rollout import Rollout
from minding.engine.lanes.free_running import FreeRun, Move
from minding.engine.lanes.group import WorkerGroup
from minding.engine.lanes.transport import Request


class _UnderWay(NamedTuple):
    """A request that a row of collectors works on, and the number of rollouts taken before it was sent."""

    request: Request
    taken: int


class ExactOrder:
    """Iteration n takes the rollout of request n, from row n modulo their number, whichever collector was fastest.

    The weights with which a rollout was collected, and the order in which rollouts are used, follow from the settings
    alone, so that an asynchronous run is as repeatable, bit for bit, as a synchronous one.
    """

    def __init__(self, group: WorkerGroup, staleness: int) -> None:
        self.rows = [range(k, k + group.shards) for k in range(0, len(group.workers), group.shards)]
        # In the order in which they are answered.
        self._requests: list[collections.deque[_UnderWay]] = [collections.deque() for _ in self.rows]
        self._group, self._staleness, self._limit = group, staleness, staleness + 1
        # Numbers of the next rollout and of the next request.
        self._number = self._asked = 0

    @property
    def ahead(self) -> int:
        """The number of requests under way."""
        return self._asked - self._number

    @property
    def may_ask(self) -> bool:
        """Whether another request may be sent now."""
        return self.ahead < self._limit

    @property
    def next_request(self) -> tuple[int, int]:
        """The number of the next request, and the row that gets it."""
        return self._asked, self._asked % len(self.rows)

    def sent(self, row: int, request: Request) -> None:
        """Notes that a row has got the next request."""
        self._requests[row].append(_UnderWay(request, self._number))
        self._asked += 1

    def next_row(self, version: int, ctx: Any) -> int | None:
        """The row whose rollout this iteration takes, with this version of the weights; None if it takes none."""
        return self._number % len(self.rows)

    def take(self, row: int) -> Request:
        """The request to which the answers of a row belong; they have arrived."""
        self._number += 1
        return self._requests[row].popleft().request


class ArrivalOrder(ExactOrder):
    """An iteration takes any rollout that has arrived, as long as none of the others would get too old (`next_rows`).

    Each row has one request under way, and one of the rows has two. Such a run does not repeat.
    """

    def __init__(self, group: WorkerGroup, staleness: int) -> None:
        super().__init__(group, staleness)
        self._limit = min(staleness, len(self.rows)) + 1

    @property
    def next_request(self) -> tuple[int, int]:
        return self._asked, min(range(len(self.rows)), key=lambda row: len(self._requests[row]))

    def next_row(self, version: int, ctx: Any) -> int | None:
        if len(self.rows) == 1:
            return 0
        found = self._group.first(
            self._allowed([[each.request.version for each in row] for row in self._requests], version)
        )
        # It was waited for.
        assert found is not None
        return self.rows.index(found)

    def _allowed(self, under_way: Sequence[Sequence[int]], now: int) -> list[range]:
        """The collectors of the rows that may be next. Each call begins with another row, so that no row with a rollout
        is passed over."""
        found = next_rows(under_way, now, self._staleness)
        return [self.rows[row] for row in sorted(found, key=lambda row: (row - self._number) % len(self.rows))]


class FreeOrder(ArrivalOrder):
    """As by arrival, but iterations may also run without a rollout, if a limiter limits the samples from replay.

    No rollout is overtaken by more than `staleness` others, and the limiter limits the learning in between.
    """

    def __init__(self, group: WorkerGroup, staleness: int, free: FreeRun) -> None:
        super().__init__(group, staleness)
        self._free = free

    def next_row(self, version: int, ctx: Any) -> int | None:
        # Counted in taken rollouts and not in versions: an iteration without a rollout overtakes none.
        allowed = self._allowed([[each.taken for each in row] for row in self._requests], self._number)
        seconds = 0.0
        while True:
            found = self._group.first(allowed, seconds)
            if found is None and seconds:
                raise self._free.late(ctx)
            rollouts = None
            if found is not None:
                fields = [answer.fields.get("trajectories") for answer in self._group.arrived(found)]
                # Readers of other fields report this themselves.
                rollouts = [each for each in fields if isinstance(each, Rollout)]
            move = self._free.move(rollouts, ctx)
            if move is not Move.WAIT:
                return self.rows.index(found) if found is not None and move is Move.TAKE else None
            seconds = self._free.seconds


def next_rows(under_way: Sequence[Sequence[int]], version: int, staleness: int) -> list[int]:
    """The rows of collectors of which one may be taken in an iteration, so that no rollout ever gets too old.

    A rollout that was collected with version w of the weights has to be used in the iteration w + staleness at the
    latest, and each iteration uses one. So if k of the rollouts under way have to be used within the next k iterations,
    the iteration takes one of these k; otherwise it may take any.
    """
    oldest = sorted((w, row, place) for row, versions in enumerate(under_way) for place, w in enumerate(versions))
    for k, (w, _, _) in enumerate(oldest):
        if w + staleness <= version + k:
            return sorted({row for _, row, place in oldest[: k + 1] if place == 0})
    return [row for row, versions in enumerate(under_way) if versions]
