"""The process at the other end of a lane: runs its part of the chain, one ticket at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from minding.engine.chain.check import chain_nodes
from minding.engine.chain.context import Context
from minding.engine.chain.middleware import name_of
from minding.engine.chain.pipeline import Step
from minding.engine.errors import ChainError, LaneError
from minding.engine.lanes.closures import Watch
from minding.engine.lanes.messages import Answer, Failure, Ticket
from minding.engine.lanes.parcel import Parcel
from minding.engine.lanes.pulse import BETWEEN, Pulse
from minding.engine.lanes.standin import LaneTask
from minding.engine.lanes.transport import ChannelClosed, SharedMemoryChannel
from minding.engine.lanes.weights import WeightBoard
from minding.engine.process.spawn import become_worker
from minding.engine.run.trace import Span
from minding.engine.types import LaneContext, StateDict, Stateful


@dataclasses.dataclass(frozen=True)
class WorkerPlan:
    """What a worker is told when it starts.

    Attributes:
      lane: name of its lane.
      index: its number there.
      names: of the members, for messages.
      keys: names in states of the members that are not composites, such as ``1:StepCollector``.
      parcel: the members.
      context: the chain's class of contexts.
      outputs: fields of an answer.
      written: fields that the members declare as written; None if one of them declares nothing: what they change is in
        the answer, too.
      depth: tickets that may wait.
      cores: processor cores to stay on; empty for all.
    """

    lane: str
    index: int
    names: tuple[str, ...]
    keys: tuple[str, ...]
    parcel: Parcel
    context: type[Context]
    outputs: tuple[str, ...]
    written: tuple[str, ...] | None
    depth: int
    cores: frozenset[int]


def main(connection: Connection, board: WeightBoard, pulse: Pulse) -> None:
    """Takes a cloudpickled `WorkerPlan` and a state to continue from, and answers tickets until the channel closes.

    Args:
      connection: to the process that started this one.
      board: where the weights are.
      pulse: shows that it lives, and what it does.
    """
    become_worker()
    pulse.start()
    worker: Worker | None = None
    channel: SharedMemoryChannel | None = None
    try:
        plan, state = pickle.loads(connection.recv_bytes())  # noqa: S301
        worker = _start(Worker(_placed(pickle.loads(plan)), board, pulse), state)  # noqa: S301
        channel = SharedMemoryChannel(connection, worker.depth)
        while True:
            ticket = channel.receive()
            if ticket is None:
                return
            channel.send(worker.work(ticket))
    except (ChannelClosed, EOFError):
        return
    except Exception as error:
        with contextlib.suppress(ChannelClosed):
            (channel or SharedMemoryChannel(connection, 1)).send(_failure(error))
    finally:
        if worker is not None:
            worker.close()


def _placed(plan: WorkerPlan) -> WorkerPlan:
    """Restricts this process to its cores before anything of the plan is built."""
    if plan.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, plan.cores)
    return plan


def _start(worker: Worker, state: StateDict | None) -> Worker:
    if state is not None:
        worker.load_state_dict(state)
    return worker


class Worker:
    """The members of a lane, rebuilt.

    Args:
      plan: what they are.
      board: where their weights come from.
      pulse: is told what is running.
    """

    def __init__(self, plan: WorkerPlan, board: WeightBoard, pulse: Pulse) -> None:
        self._plan, self._pulse = plan, pulse
        self.depth = plan.depth
        self._board = board
        self._lane = LaneContext(plan.index, board.empty())
        self._version = -1
        members, built = plan.parcel.unpack(self._lane)
        leaves = [leaf for node in chain_nodes(members) for leaf in node.leaves()]
        self._leaves: dict[str, Any] = {key: leaf.middleware for key, leaf in zip(plan.keys, leaves, strict=True)}
        self._acting = [built[place] for place in plan.parcel.acting]
        self._task = LaneTask.install(plan.lane)
        self._watch = Watch([leaf.middleware for leaf in leaves], plan.lane)
        self._spans: list[Span] = []
        self._steps = [
            Step(self._timed(index, member), name_of(member), f"{plan.lane} lane")
            for index, member in enumerate(members)
        ]
        pulse.cells[1] = BETWEEN

    def work(self, ticket: Ticket) -> Answer:
        """Runs the members on its own context."""
        if ticket.version != self._version:
            self._board.read(ticket.slot, ticket.version, self._lane.weights)
            self._version = ticket.version
            for refreshed in self._lane.on_refresh:
                refreshed()
        ctx = self._plan.context()
        for name, value in ticket.fields.items():
            setattr(ctx, name, value)
        self._spans = []
        before = _photograph(ctx)
        self._task.play(self._steps, ctx)
        self._watch.check()
        changed = [name for name, value in before.items() if _changed(value, getattr(ctx, name))]
        fields = {name: getattr(ctx, name) for name in (*self._plan.outputs, *self._undeclared(changed))}
        return Answer(ticket.number, fields, self.state_dict(), self._spans, self._task.finish, self._task.emitted)

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
        """State of the members by key, and of what acts (its random stream)."""
        members = {key: member.state_dict() for key, member in self._leaves.items() if isinstance(member, Stateful)}
        return {"members": members, "acting": [thing.state_dict() for thing in self._acting]}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; members without state there keep their own."""
        for key, member_state in state["members"].items():
            member = self._leaves[key]
            member.load_state_dict(member_state)
        for thing, acting_state in zip(self._acting, state["acting"]):
            thing.load_state_dict(acting_state)

    def close(self) -> None:
        """Closes what the members hold."""
        for member in self._leaves.values():
            with contextlib.suppress(Exception):  # The process ends; what matters was sent.
                getattr(member, "close", lambda: None)()

    def _timed(self, index: int, member: Any) -> Any:
        name, cells = name_of(member), self._pulse.cells

        def call(ctx: Any) -> Any:
            start, cells[1] = time.monotonic(), index
            try:
                return member(ctx)
            finally:
                cells[1] = BETWEEN
                self._spans.append(Span(name, start, time.monotonic()))

        return call


def _photograph(ctx: Context) -> dict[str, tuple[Any, Any]]:
    """Each field, with a shallow copy of those that may be changed in place."""
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
