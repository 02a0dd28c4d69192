"""The other end of a lane: runs its part of the chain, one request at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pickle
import time
import traceback
from collections.abc import Sequence
from typing import Any, Protocol

import cloudpickle

from minding.engine.chain.context import Context
from minding.engine.chain.middleware import declaration_of, name_of
from minding.engine.chain.pipeline import Step, all_leaves, chain_nodes
from minding.engine.chain.trace import Span
from minding.engine.errors import ChainError, LaneError
from minding.engine.lanes.shared_state_check import SharedStateCheck
from minding.engine.lanes.shipping import PickledMembers
from minding.engine.lanes.state_diff import Increments
from minding.engine.lanes.transport import (
    BETWEEN,
    Answer,
    Channel,
    ChannelClosed,
    Failure,
    Heartbeat,
    Line,
    Port,
    Question,
    Request,
    Snapshot,
    WeightReader,
)
from minding.engine.lanes.worker_task import WorkerTask
from minding.engine.types import Array, LaneContext, Network, StateDict, Stateful


@dataclasses.dataclass(frozen=True)
class WorkerPlan:
    """The instructions with which a worker starts."""

    lane: str
    index: int
    names: tuple[str, ...]
    keys: tuple[str, ...]
    members: PickledMembers
    context: type[Context]
    outputs: tuple[str, ...]
    written: tuple[str, ...] | None
    depth: int
    own_process: bool
    increments: bool = False
    shards: int = 1
    port: Port | None = None

    def build(self, weights: WeightReader, heartbeat: Heartbeat, task: WorkerTask) -> Worker:
        """Builds the object that runs the members; called in the worker."""
        return Worker(self, weights, heartbeat, task)


class Plan(Protocol):
    """The instructions of a worker, as its supervisor sees them: members of a lane, or an inference server."""

    @property
    def lane(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its members for messages, indexed by the number in its heartbeat."""
        ...

    @property
    def depth(self) -> int:
        """The maximum number of waiting requests."""
        ...

    def build(self, weights: WeightReader, heartbeat: Heartbeat, task: WorkerTask) -> Runs:
        """Builds the object that does the worker's work; called in the worker."""
        ...


class Runs(Protocol):
    """An object that does a worker's work."""

    def load_state_dict(self, state: StateDict) -> None: ...

    def run(self, channel: Channel) -> None:
        """Answers requests until one is None."""
        ...

    def close(self) -> None:
        """Releases its resources."""
        ...


def serve(channel: Channel, weights: WeightReader, heartbeat: Heartbeat, task: WorkerTask) -> None:
    """Runs a worker in its process, thread or actor until its channel closes.

    The first message is a pickled pair: the cloudpickled `Plan`, and a state to continue from or None. Requests follow,
    each of which is answered; None ends the worker. An exception of a member is sent as a `Failure` and also ends the
    worker; one that is not an `Exception` kills it, like `sys.exit` in a process.
    """
    worker: Runs | None = None
    try:
        plan, state = pickle.loads(channel.receive())  # noqa: S301 - from the main process of this run
        worker = pickle.loads(plan).build(weights, heartbeat, task)  # noqa: S301
        assert worker is not None
        if state is not None:
            worker.load_state_dict(state)
        worker.run(channel)
    except ChannelClosed:
        return
    except Exception as error:
        with contextlib.suppress(ChannelClosed):
            channel.send(_failure(error))
    finally:
        if worker is not None:
            worker.close()


class Worker:
    """The rebuilt members of a lane."""

    def __init__(self, plan: WorkerPlan, weights: WeightReader, heartbeat: Heartbeat, task: WorkerTask) -> None:
        self._plan, self._heartbeat = plan, heartbeat
        self._weights, self._task = weights, task
        self._remote = None if plan.port is None else RemoteNetworks(plan.port.connect(plan.index))
        self._reads = self._remote is None or plan.members.needs_weights
        arrays = weights.empty() if self._reads else {}
        self._lane = LaneContext(plan.index, arrays, plan.own_process, plan.shards)
        self._version = -1
        task.enter(plan.lane)
        members, built = plan.members.rebuild(self._lane, None if self._remote is None else self._remote.network)
        leaves = list(all_leaves(chain_nodes(members)))
        self._leaves: dict[str, Any] = {key: leaf.middleware for key, leaf in zip(plan.keys, leaves, strict=True)}
        self._acting = [built[place] for place in plan.members.acting]
        self._increments = Increments() if plan.increments else None
        self._shared_state = SharedStateCheck([leaf.middleware for leaf in leaves], plan.lane)
        self._spans: list[Span] = []
        self._steps = [
            Step(self._timed(index, member), name_of(member), f"{plan.lane} lane", declaration_of(member))
            for index, member in enumerate(members)
        ]
        heartbeat.member = BETWEEN

    def run(self, channel: Channel) -> None:
        """Answers requests until one is None."""
        while (request := channel.receive()) is not None:
            channel.send(self.work(request, channel.place))

    def work(self, request: Request, place: Any) -> Answer:
        """Runs the members on its own context, with the weights at `place`."""
        if self._remote is not None:
            self._remote.version = request.version
        if self._reads and request.version != self._version:
            self._weights.read(Snapshot(request.version, place), self._lane.weights)
            self._version = request.version
            for refreshed in self._lane.on_refresh:
                refreshed()
        ctx = self._plan.context()
        for name, value in request.fields.items():
            setattr(ctx, name, value)
        self._spans = []
        before = _snapshot_of(ctx)
        self._task.play(self._steps, ctx)
        self._shared_state.check()
        changed = [name for name, value in before.items() if _changed(value, getattr(ctx, name))]
        fields = {name: getattr(ctx, name) for name in (*self._plan.outputs, *self._undeclared(changed))}
        state = self.state_dict()
        if self._increments is not None:
            state["members"] = self._increments.next(state["members"])
        return Answer(request.number, fields, state, self._spans, self._task.finish, self._task.emitted)

    def _undeclared(self, changed: list[str]) -> list[str]:
        if self._plan.written is None:
            return changed
        for name in changed:
            if name not in self._plan.written:
                members = ", ".join(key.partition(":")[2] for key in self._plan.keys)
                raise ChainError(
                    f"ctx.{name} was set in the {self._plan.lane} lane ({members}), where nothing declares it: it "
                    f"would be lost there. Add {name!r} to the `writes` of the middleware that sets it (@declare)"
                )
        return []

    def state_dict(self) -> StateDict:
        """The states of the members by key, and of the acting objects (their random streams)."""
        members = {key: member.state_dict() for key, member in self._leaves.items() if isinstance(member, Stateful)}
        return {"members": members, "acting": [thing.state_dict() for thing in self._acting]}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a result of `state_dict`; members that it does not contain keep their state."""
        for key, member_state in state["members"].items():
            member = self._leaves[key]
            member.load_state_dict(member_state)
        for thing, acting_state in zip(self._acting, state["acting"]):
            thing.load_state_dict(acting_state)

    def close(self) -> None:
        """Closes the members and the line to a server."""
        if self._remote is not None:
            self._remote.close()
        for member in self._leaves.values():
            with contextlib.suppress(Exception):  # The process is about to end, and the answers were sent.
                getattr(member, "close", lambda: None)()

    def _timed(self, index: int, member: Any) -> Any:
        name, heartbeat = name_of(member), self._heartbeat

        def call(ctx: Any) -> Any:
            start, heartbeat.member = time.monotonic(), index
            try:
                return member(ctx)
            finally:
                heartbeat.member = BETWEEN
                self._spans.append(Span(name, start, time.monotonic()))

        return call


class RemoteNetworks:
    """The networks that an inference server computes for a collector, with the weights of its current request."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.version = -1

    def network(self, place: int) -> Network:
        """The network at a position among the served ones; called like a network in this process."""
        return functools.partial(self._ask, place)

    def _ask(self, place: int, leaves: Sequence[Array]) -> tuple[Array, ...]:
        return self._line.ask(Question(place, self.version, list(leaves)))

    def close(self) -> None:
        """Tells the server that there will be no further question."""
        self._line.close()


def _snapshot_of(ctx: Context) -> dict[str, tuple[Any, Any]]:
    """All fields, with shallow copies of values that may be changed in place."""
    fields = ((field.name, getattr(ctx, field.name)) for field in dataclasses.fields(ctx))
    return {name: (value, value.copy() if type(value) in (dict, list) else None) for name, value in fields}


def _changed(before: tuple[Any, Any], now: Any) -> bool:
    value, copy = before
    if now is not value or copy is None:
        return now is not value
    if len(now) != len(copy):
        return True
    if isinstance(copy, dict):
        return any(key not in now or now[key] is not copy[key] for key in copy)
    return any(one is not other for one, other in zip(now, copy))


def _failure(error: Exception) -> Failure:
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(cloudpickle.dumps(error))  # noqa: S301
    except Exception:
        error = LaneError(traceback.format_exception_only(error)[0].rstrip())
    return Failure(error, text)
