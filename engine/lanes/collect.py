"""The collect lane, as a middleware in place of those that run in it, and the trial that decides, with
``lanes.inference=auto``, where its collectors compute their networks."""

import time
from collections.abc import Sequence
from typing import Any

from minding.engine.chain.context import Context
from minding.engine.chain.middleware import Declaration
from minding.engine.chain.pipeline import Node
from minding.engine.console import console_logger
from minding.engine.data.rollout import Rollout
from minding.engine.data.rollout_joins import JOINED, CannotJoin, join_shards
from minding.engine.errors import ChainError
from minding.engine.lanes.group import WorkerGroup, close_groups
from minding.engine.lanes.order import ExactOrder

_COUNTERS = ("env_step", "env_episode")
_UNSET = object()


class CollectLane:
    """Keeps collectors busy and hands the context of each iteration its rollout, as the order says.

    With S shards, a request goes to S collectors, each with its share of the environments, and their answers are joined
    in the order of the collectors.
    """

    def __init__(self, group: WorkerGroup, order: ExactOrder, max_staleness: int, kept: Sequence[str]) -> None:
        self.order = order
        self._group, self._ahead, self._kept = group, max_staleness, kept
        # The values of inputs that nothing has set in this iteration.
        self._unset: dict[str, Any] | None = None
        # A field that the lane reads and then writes is a counter.
        self._counters = frozenset(group.part.inputs).intersection((*group.part.outputs, *_COUNTERS))
        # The gain of the counters per iteration, taken from the last one.
        self._gain: dict[str, Any] = {}
        self.has_rollout = True
        self.declaration = Declaration("collect lane", None, group.part.inputs, (*group.part.outputs, "policy_lag"))

    def __call__(self, ctx: Any) -> None:
        """Sends as many requests as allowed, and waits for this iteration's rollout."""
        if self._ahead:
            self._refuse_late_inputs(ctx)
        choose_inference(self._group, ctx)
        version = self._group.publish()
        while self.order.may_ask:
            self._send_request(ctx)
        row = self.order.next_row(version, ctx)
        self.has_rollout = row is not None
        if row is None:
            return
        answers = self._group.answers(self.order.rows[row])
        request = self.order.take(row)
        for name in dict.fromkeys(name for answer in answers for name in answer.fields):
            self._refuse_unclear(name)
            values = [answer.fields.get(name, _UNSET) for answer in answers]
            if self._counts(name, values) and name in ctx.kept:
                value = self._counted(name, values, request.fields[name], getattr(ctx, name))
            else:
                value = self._joined(name, values)
            if isinstance(value, Rollout):
                value.collector = row
            setattr(ctx, name, value)
        if "policy_lag" in ctx.__dataclass_fields__:
            lag = version - request.version
            ctx.policy_lag = {"min": lag, "mean": float(lag), "max": lag}
        for answer in answers:
            self._group.forward_calls(answer)

    def check(self) -> None:
        """Refuses a chain in which middleware outside of the lane declare that they write a field that the lane
        reads."""
        for leaf in self._group.part.upstream if self._ahead else ():
            for name in leaf.declaration.writes if leaf.declaration else ():
                if name in self._late_inputs():
                    raise ChainError(self._too_late(name, [leaf]))

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
        (number, row), ahead = self.order.next_request, self.order.ahead
        fields = self._group.fields(ctx)
        for name, gain in self._gain.items():
            fields[name] += ahead * gain
        fields["total_step"] += ahead
        # All shards get the same fields.
        tickets = [self._group.submit(worker, number, fields) for worker in self.order.rows[row]]
        self.order.sent(row, tickets[0].request)


def _named(leaves: Sequence[Node], unknown: str) -> str:
    return " or ".join(f"{leaf.name} at position {leaf.position}" for leaf in leaves) or unknown


_WARM, _TRIALS = 2, 6
"""Iterations of a trial; the first number counts those that start workers and compile graphs."""


def choose_inference(group: WorkerGroup, ctx: Context) -> None:
    """Once, in the first iteration: with ``lanes.inference=auto``, measures which of the two is faster. All workers run
    some iterations in either way, whose results are dropped, and then begin with their first state."""
    if group.inference != "auto":
        return
    local, server = trial(group, ctx)
    chosen = "server" if server < local else "local"
    console_logger().info(
        "lanes.inference=auto: an iteration of all collectors took %.1f ms acting locally and %.1f ms through a "
        "server: %s",
        1e3 * local,
        1e3 * server,
        chosen,
    )
    group.settle(chosen)


def trial(group: WorkerGroup, ctx: Context) -> tuple[float, float]:
    """The time of an iteration of all workers in seconds, locally and through a server: the fastest of several. The two
    alternate, so that other load on the machine affects both; it affects the fastest iteration least."""
    groups: list[WorkerGroup] = []
    times: list[list[float]] = [[], []]
    try:
        for where in ("local", "server"):
            groups.append(group.like(where))
            groups[-1].publish()
        for number in range(_WARM + _TRIALS):
            for each, its_times in zip(groups, times, strict=True):
                its_times.append(_seconds(each, number, ctx))
    finally:
        close_groups(groups)
    local, server = (min(its_times[_WARM:]) for its_times in times)
    return local, server


def _seconds(group: WorkerGroup, number: int, ctx: Context) -> float:
    """The time of an iteration of all workers."""
    began = time.monotonic()
    for index in range(len(group.workers)):
        group.submit(index, number, group.fields(ctx))
    for worker in group.workers:
        worker.wait(group.interrupted)
        worker.poll()
    return time.monotonic() - began
