"""The collect lane, as a middleware in place of those that run in it."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

from minding.engine.chain.middleware import Declaration
from minding.engine.chain.pipeline import Node
from minding.engine.data.rollout import Rollout
from minding.engine.data.rollout_joins import JOINED, CannotJoin, join_shards
from minding.engine.errors import ChainError
from minding.engine.lanes.free_running import FreeRun, Move
from minding.engine.lanes.group import WorkerGroup
from minding.engine.lanes.transport import Request

_COUNTERS = ("env_step", "env_episode")
_UNSET = object()


class _UnderWay(NamedTuple):
    """A request that a row of collectors works on, and the number of rollouts taken before it was sent."""

    request: Request
    taken: int


class CollectLane:
    """Keeps collectors busy and hands the context of each iteration its rollout.

    Iteration n gets the rollout of request n, whichever collector was fastest: the weights with which a rollout was
    collected, and the order in which rollouts are used, follow from the settings alone, so that an asynchronous run is
    as repeatable, bit for bit, as a synchronous one. Request n is sent when the learner is at most `max_staleness`
    iterations away from the n-th; this limits memory as well as age.

    With S shards, a request goes to S collectors, each with its share of the environments, and their answers are joined
    in the order of the collectors. Each S collectors form a row: iteration n belongs to row n modulo the number of
    rows.

    With ``order="arrival"``, an iteration takes any rollout that has arrived, as long as none of the others would get
    too old (see `next_rows`). Each row then has one request under way, and one of the rows has two. Such a run does not
    repeat. If a limiter limits the samples from replay (`free`), iterations may also run without a rollout. In that
    case no rollout is overtaken by more than `max_staleness` others, and the limiter limits the learning in between.

    Attributes:
      free: decides whether an iteration takes a rollout; None if every iteration does.
      has_rollout: whether the current iteration has a rollout.

    Args:
      group: the collectors, row by row.
      max_staleness, order: see `LaneOptions`.
      kept: fields of the context that outlive an iteration.
    """

    def __init__(self, group: WorkerGroup, max_staleness: int, order: str, kept: Sequence[str]) -> None:
        self._group = group
        self._ahead, self._kept = max_staleness, kept
        # The values of inputs that nothing has set in this iteration.
        self._unset: dict[str, Any] | None = None
        rows = len(group.workers) // group.shards
        self._exact = order == "exact"
        # The requests of each row, in the order in which they are answered.
        self._requests: list[collections.deque[_UnderWay]] = [collections.deque() for _ in range(rows)]
        self._under_way = max_staleness + 1 if self._exact else min(max_staleness, rows) + 1
        # Numbers of the next rollout and of the next request.
        self._number = self._asked = 0
        # A field that the lane reads and then writes is a counter.
        self._counters = frozenset(group.part.inputs).intersection((*group.part.outputs, *_COUNTERS))
        # The gain of the counters per iteration, taken from the last one.
        self._gain: dict[str, Any] = {}
        self.free: FreeRun | None = None
        self.has_rollout = True
        self.declaration = Declaration("collect lane", None, group.part.inputs, (*group.part.outputs, "policy_lag"))

    def __call__(self, ctx: Any) -> None:
        """Sends as many requests as allowed, and waits for this iteration's rollout."""
        if self._ahead:
            self._refuse_late_inputs(ctx)
        self._group.decide(ctx)
        version = self._group.publish()
        while self._asked - self._number < self._under_way:
            self._send_request(ctx)
        row = self._next_row(version) if self.free is None else self._free_row(self.free, ctx)
        self.has_rollout = row is not None
        if row is None:
            return
        workers = self._workers(row)
        answers = self._group.answers(workers)
        request = self._requests[row].popleft().request
        self._number += 1
        for name in dict.fromkeys(name for answer in answers for name in answer.fields):
            self._refuse_unclear(name)
            values = [answer.fields.get(name, _UNSET) for answer in answers]
            if self._counts(name, values) and name in ctx.kept:
                value = self._counted(name, values, request.fields[name], getattr(ctx, name))
            else:
                value = self._joined(name, values)
            if isinstance(value, Rollout):
                value.collector = workers.start // len(workers)
            setattr(ctx, name, value)
        if "policy_lag" in ctx.__dataclass_fields__:
            lag = version - request.version
            ctx.policy_lag = {"min": lag, "mean": float(lag), "max": lag}
        for answer in answers:
            self._group.forward_calls(answer)

    def check(self) -> None:
        """Refuses a chain in which middleware outside of the lane declare that they write a field that the lane reads.

        Raises:
          ChainError: such a middleware exists; the message says what to do.
        """
        for leaf in self._group.part.upstream if self._ahead else ():
            for name in leaf.declaration.writes if leaf.declaration else ():
                if name in self._late_inputs():
                    raise ChainError(self._too_late(name, [leaf]))

    def _workers(self, row: int) -> range:
        """The collectors of a row."""
        shards = self._group.shards
        return range(row * shards, (row + 1) * shards)

    def _next_row(self, version: int) -> int:
        """The row whose rollout this iteration takes."""
        rows = len(self._requests)
        if self._exact or rows == 1:
            return self._number % rows
        versions = [[each.request.version for each in row] for row in self._requests]
        found = self._group.first(self._allowed(versions, version))
        # It was waited for.
        assert found is not None
        return found.start // self._group.shards

    def _free_row(self, free: FreeRun, ctx: Any) -> int | None:
        """The row whose rollout this iteration takes; None if the iteration runs without a rollout."""
        # Counted in taken rollouts and not in versions: an iteration without a rollout overtakes none.
        allowed = self._allowed([[each.taken for each in row] for row in self._requests], self._number)
        seconds = 0.0
        while True:
            found = self._group.first(allowed, seconds)
            if found is None and seconds:
                raise free.late(ctx)
            rollouts = None
            if found is not None:
                fields = [answer.fields.get("trajectories") for answer in self._group.arrived(found)]
                # Readers of other fields report this themselves.
                rollouts = [each for each in fields if isinstance(each, Rollout)]
            move = free.move(rollouts, ctx)
            if move is not Move.WAIT:
                return found.start // self._group.shards if found is not None and move is Move.TAKE else None
            seconds = free.seconds

    def _allowed(self, under_way: Sequence[Sequence[int]], now: int) -> list[range]:
        """The collectors of the rows that may be next. Each call begins with another row, so that no row with a rollout
        is passed over."""
        rows = len(self._requests)
        allowed = sorted(next_rows(under_way, now, self._ahead), key=lambda row: (row - self._number) % rows)
        return [self._workers(row) for row in allowed]

    def _counts(self, name: str, values: Sequence[Any]) -> bool:
        return name in self._counters and all(value is _UNSET or type(value) in (int, float) for value in values)

    def _counted(self, name: str, values: Sequence[Any], before: Any, here: Any) -> Any:
        """The value of a counter after the gains of all shards."""
        gains = [value - before for value in values if value is not _UNSET]
        # A request begins where its iteration was expected to begin.
        self._gain[name] = gain = sum(gains[1:], gains[0])
        return values[0] if len(values) == 1 and here == before else here + gain

    def _joined(self, name: str, values: Sequence[Any]) -> Any:
        if len(values) == 1:
            return values[0]
        try:
            if any(value is _UNSET for value in values):
                raise CannotJoin
            return join_shards(name, values, self._group.envs)
        except CannotJoin:
            leaves = self._group.part.leaves
            writers = [leaf for leaf in leaves if leaf.declaration and name in leaf.declaration.writes]
            named = _named(writers or [leaf for leaf in leaves if not leaf.declaration], "a middleware")
            raise ChainError(
                f"{named} sets ctx.{name} in {len(values)} shards of an iteration to different values, and only "
                f"these can be joined: {', '.join(JOINED)} and counters. Use the middleware without a role after the "
                "collector, so that it sees the whole iteration in the main process, or set lanes.shards=1"
            ) from None

    def _refuse_unclear(self, name: str) -> None:
        """Refuses changes of a kept field by an undeclared member: requests ahead have to know if it adds or sets."""
        if self._ahead and name in self._kept and name not in (*self._group.part.outputs, *_COUNTERS):
            raise ChainError(
                f"ctx.{name} is kept, and a function in the collect lane that declares nothing changed it: several "
                "iterations are under way, so it matters whether it is counted up or set. Declare the function: "
                f'@declare(role="collect", reads=("{name}",), writes=("{name}",)) counts it up, without `reads` sets it'
            )

    def _late_inputs(self) -> list[str]:
        return [name for name in self._group.part.inputs if name not in self._kept]

    def _refuse_late_inputs(self, ctx: Any) -> None:
        if self._unset is None:
            fresh = type(ctx)()
            inputs = [name for name in self._late_inputs() if name in ctx.__dataclass_fields__]
            self._unset = {name: getattr(fresh, name) for name in inputs}
        for name, unset in self._unset.items():
            value = getattr(ctx, name)
            if value is not unset and not (type(value) in (dict, list, set) and value == unset):
                raise ChainError(
                    self._too_late(name, [leaf for leaf in self._group.part.upstream if not leaf.declaration])
                )

    def _too_late(self, name: str, writers: list[Node]) -> str:
        return (
            f"{_named(writers, 'a middleware')} sets ctx.{name} in the main process, for a collector that works up to "
            f"{self._ahead} iterations ahead: it would come that many iterations late. Put it next to the collector "
            'with the role collect, task.use(fn, role="collect"), so that both run in the collect lane; or set '
            "lanes.max_staleness=0"
        )

    def _send_request(self, ctx: Any) -> None:
        number, ahead = self._asked, self._asked - self._number
        rows = range(len(self._requests))
        row = number % len(rows) if self._exact else min(rows, key=lambda row: len(self._requests[row]))
        fields = self._group.fields(ctx)
        for name, gain in self._gain.items():
            fields[name] += ahead * gain
        fields["total_step"] += ahead
        # All shards get the same fields.
        tickets = [self._group.submit(worker, number, fields) for worker in self._workers(row)]
        self._requests[row].append(_UnderWay(tickets[0].request, self._number))
        self._asked += 1


def _named(leaves: Sequence[Node], unknown: str) -> str:
    return " or ".join(f"{leaf.name} at position {leaf.position}" for leaf in leaves) or unknown


def next_rows(under_way: Sequence[Sequence[int]], version: int, staleness: int) -> list[int]:
    """The rows of collectors of which one may be taken in an iteration, so that no rollout ever gets too old.

    A rollout that was collected with version w of the weights has to be used in the iteration w + staleness at the
    latest, and each iteration uses one. So if k of the rollouts under way have to be used within the next k iterations,
    the iteration takes one of these k; otherwise it may take any.

    Args:
      under_way: for each row the versions of the weights of its requests, in the order in which they are answered.
      version: version of the weights of this iteration.
      staleness: maximum age, in versions, of the weights of a rollout.
    """
    oldest = sorted((w, row, place) for row, versions in enumerate(under_way) for place, w in enumerate(versions))
    for k, (w, _, _) in enumerate(oldest):
        if w + staleness <= version + k:
            return sorted({row for _, row, place in oldest[: k + 1] if place == 0})
    return [row for row, versions in enumerate(under_way) if versions]
