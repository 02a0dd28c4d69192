"""A worker as seen from its lane: requests in, answers out, and a new worker when one dies."""

import collections
import contextlib
import logging
import pickle
import platform
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cloudpickle

from minding.engine.chain.lanes import WorkerStatus
from minding.engine.errors import LaneError, add_note
from minding.engine.lanes.state_diff import Changes, applied
from minding.engine.lanes.transport import (
    STARTING,
    Answer,
    ChannelClosed,
    Failure,
    Heartbeat,
    Port,
    Request,
    Snapshot,
    Transport,
    WeightStore,
    WorkerHandle,
)
from minding.engine.lanes.worker import Plan
from minding.engine.process.signals import Interrupted
from minding.engine.process.spawn import stop_at_exit
from minding.engine.types import StateDict

_log = logging.getLogger("minding.lanes")
_PATIENCE = 0.05  # s between two looks at whether the run was interrupted
_CLOSE_TIMEOUT = 2.0  # s
_WORK = {"collect": "rollout", "evaluate": "evaluation", "inference": "version"}
_WINDOW = 16
"""Unanswered requests that a worker gets at a time. They fit into its connection together, so that sending one never
waits for the worker, which may itself wait until its answers are read."""
_SILENT = 5.0  # s without a sign of life that are worth a word
_FIRST_REPORT = 10.0  # s of waiting; the next ones after twice as many each


class Ticket(NamedTuple):
    """A request that is under way, and the weights that are retained for it."""

    request: Request
    weights: Snapshot


class Wait:
    """The time that the main process has waited for a worker, and for a sign of life from it.

    Time in which the main process itself did not run (stopped, or the machine asleep) does not count. The silence of
    each replacement of a worker is counted from its own start, so that it has the whole time to start.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.silent = 0.0
        self._looked = time.monotonic()
        self._heartbeat: Heartbeat | None = None
        self._beats = -1
        self._report = _FIRST_REPORT

    def look(self, heartbeat: Heartbeat) -> None:
        """Counts the time since the last check."""
        now = time.monotonic()
        lived, self._looked = min(now - self._looked, 1.0), now
        self.seconds += lived
        beats = heartbeat.beats
        known = heartbeat is self._heartbeat and beats == self._beats
        self.silent = self.silent + lived if known else 0.0
        self._heartbeat, self._beats = heartbeat, beats

    def report_due(self) -> bool:
        """Whether it is time to report the wait; reports become rarer with time."""
        due = self.seconds >= self._report
        if due:
            self._report *= 2
        return due


class SupervisedWorker:
    """A worker that is restarted with its last state if it dies, and then gets its unanswered requests again.

    A request that was not finished is repeated from the state after the last answer, with the same weights.

    Args:
      timeout: seconds without a sign of life after which it counts as dead.
      start_timeout: seconds until the first sign of life after which it counts as dead.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        timeout: float,
        start_timeout: float,
        limit: int = 3,
        port: Port | None = None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.state: StateDict | None = None
        self._transport, self._port = transport, port
        self._timeout, self._start_timeout, self._limit = timeout, start_timeout, limit
        self._plan: Plan
        self._store: WeightStore
        self._cores: frozenset[int] = frozenset()
        self._unanswered: collections.deque[Ticket] = collections.deque()
        self._sent = 0  # of the unanswered requests, to the running worker
        self._deaths = 0
        self._waited = 0.0
        self._arrived: Answer | None = None
        # At most one handle, in a list, so that the function that ends it keeps no reference to this object.
        self._running: list[WorkerHandle] = []
        stop_at_exit(self, _stop, self._running)

    @property
    def started(self) -> bool:
        """Whether the worker was started and not closed; it may be dead."""
        return bool(self._running)

    @property
    def lives(self) -> bool:
        """Whether the worker was started and has not ended."""
        return bool(self._running) and self._running[0].join(0.0) is None

    @property
    def pid(self) -> int | None:
        """Id of its process on this machine; None if there is none."""
        if not self._running or self._running[0].node != platform.node():
            return None
        return self._running[0].pid

    @property
    def status(self) -> WorkerStatus | None:
        """Its current activity; None if it was not started, or has ended with the run."""
        if not self._running:
            return None
        handle, request = self._running[0], self._unanswered[0].request if self._unanswered else None
        return WorkerStatus(
            name=self.name,
            kind=handle.kind,
            node=handle.node,
            pid=handle.pid,
            member=self._doing(handle.heartbeat.member),
            weights_age=None if request is None else self._store.version - request.version,
            backlog=len(self._unanswered),
            waited=round(self._waited, 3),
            restarts=self.restarts,
        )

    def expect(self, deadline: float) -> None:
        """Begins to ask for its current activity, see `Heartbeat.expect`."""
        if self._running:
            self._running[0].heartbeat.expect(deadline)

    @property
    def unanswered(self) -> int:
        """The number of requests under way."""
        return len(self._unanswered)

    @property
    def oldest(self) -> int | None:
        """The oldest version of the weights that requests under way need."""
        return min((ticket.weights.version for ticket in self._unanswered), default=None)

    @property
    def arrived(self) -> Answer | None:
        """The answer to its oldest request, if `look` has found it and `poll` has not taken it."""
        return self._arrived

    @property
    def clock_error(self) -> float:
        return self._running[0].clock_error if self._running else 0.0

    def prepare(self, plan: Plan, store: WeightStore, cores: frozenset[int]) -> None:
        """Sets the instructions and the store of the worker; the weights of a request are released after its answer."""
        self._plan, self._store, self._cores = plan, store, cores
        self._pickled = cloudpickle.dumps(plan)

    def submit(self, ticket: Ticket) -> None:
        """Gives the worker a request; the first one starts it."""
        self._unanswered.append(ticket)
        if not self._running:
            self._start()
        elif not self._send():
            self._revive()

    def wait(self, interrupted: Callable[[], bool]) -> None:
        """Waits until the answer to the oldest request has arrived, and leaves it for `poll`, as `look` does."""
        wait, began = Wait(), time.monotonic()
        while not self.watch(wait, interrupted):
            pass
        self._waited += time.monotonic() - began

    def watch(self, wait: Wait, interrupted: Callable[[], bool], patience: float = _PATIENCE) -> bool:
        """Looks for the answer to the oldest request for at most `patience` seconds, and replaces the worker if it is
        silent. It raises the errors of `wait`."""
        self.look(patience)
        if self._arrived is not None:
            return True
        if interrupted():
            raise Interrupted(f"waiting for {self.name}")
        wait.look(self._running[0].heartbeat)
        if wait.report_due():
            _log.warning("%s", self._waiting_message(wait))
        self._replace_silent(wait)
        return False

    def tend(self, wait: Wait) -> None:
        """Replaces the worker if it has died or is silent; for workers that others wait for."""
        if not self._running:
            return
        if self._running[0].join(0.0) is None:
            wait.look(self._running[0].heartbeat)
            self._replace_silent(wait)
            return
        with contextlib.suppress(TimeoutError, ChannelClosed):
            while True:
                message = self._running[0].channel.receive(0.0)
                if isinstance(message, Failure):
                    raise self._error(message)
        self._revive()

    def poll(self, timeout: float = 0.0) -> Answer | None:
        """The answer to the oldest request; None if none arrives within `timeout` seconds. Raises errors as `wait`."""
        self.look(timeout)
        answer, self._arrived = self._arrived, None
        if answer is None:
            return None
        request, weights = self._unanswered.popleft()
        assert request.number == answer.number
        self._sent -= 1
        # A death is noticed by the next look for an answer.
        self._send()
        self._store.release(weights)
        self._deaths = 0
        members = answer.state["members"]
        if isinstance(members, Changes):
            # A worker's first answer is whole, and nothing has changed the state since the previous answer.
            assert self.state is not None
            answer.state["members"] = applied(self.state["members"], members)
        self.state = answer.state
        if self._running[0].has_better_place():
            _log.warning("%s moves to a free CPU", self.name)
            _end(self._running, patience=0.0)
            self._start()
        return answer

    def look(self, timeout: float = 0.0) -> None:
        """Fetches the answer to the oldest request if it arrives within `timeout` seconds, but leaves it for `poll`.
        The state of the worker and the weights of the request do not change, so that nothing depends on the arrival
        time of an answer that is not needed yet. A worker that died is started again."""
        if self._arrived is not None:
            return
        if not self._running:
            # The run continues after an error ended an earlier one.
            self._start()
        try:
            message = self._running[0].channel.receive(timeout)
        except TimeoutError:
            return
        except ChannelClosed:
            self._revive()
            return
        if isinstance(message, Failure):
            raise self._error(message)
        self._arrived = message

    def ask_to_end(self) -> None:
        """Lets the worker end by itself after it has answered its requests."""
        _ask_to_end(self._running)

    def close(self, patience: float = _CLOSE_TIMEOUT) -> None:
        """Ends the worker, by force after `patience` seconds; requests under way are released."""
        _stop(self._running, patience)
        self._arrived = None
        while self._unanswered:
            self._store.release(self._unanswered.popleft().weights)

    def _start(self) -> None:
        handle = self._transport.start(self.name, self._store, self._plan.depth, self._cores, self._port)
        self._running.append(handle)
        # Sent as bytes, so that it takes no slot for arrays.
        with contextlib.suppress(ChannelClosed):
            handle.channel.send(pickle.dumps((self._pickled, self.state)))
        self._sent = 0
        self._send()

    def _send(self) -> bool:
        """Sends the next requests, up to `_WINDOW` unanswered ones; False if the worker has gone."""
        channel = self._running[0].channel
        with contextlib.suppress(ChannelClosed):
            while self._sent < min(len(self._unanswered), _WINDOW):
                ticket = self._unanswered[self._sent]
                channel.send(ticket.request, ticket.weights.place)
                self._sent += 1
            return True
        return False

    def _revive(self, silence: tuple[float, str] | None = None) -> None:
        """Starts a worker in place of one that died, whose sent answers were received before; `silence`: seconds
        without a sign of life after which it was ended, and the name of their setting."""
        handle = self._running[0]
        end = handle.join(_CLOSE_TIMEOUT)
        ended, remedy = end or "does not answer", ""
        if silence is not None:
            ended = f"gave no sign of life for {silence[0]:g} s ({silence[1]})"
            remedy = f"; raise {silence[1].partition(',')[0]} if it only needs more time"
        who = f"the {handle.kind} of {self.name}"
        _end(self._running, patience=0.0)
        # The request of this answer is sent again with the others.
        self._arrived = None
        self._deaths += 1
        if self._deaths >= self._limit:
            raise LaneError(
                f"{who} died {self._deaths} times before it answered; it last {ended}: run without async_mode to see "
                f"whether an environment brings its {handle.kind} down{remedy}"
            )
        _log.warning("%s %s; it is started again", who, ended)
        self.restarts += 1
        self._start()

    def _patience_with(self, heartbeat: Heartbeat) -> tuple[float, str]:
        """The seconds without a sign of life after which a worker is replaced, and the name of their setting."""
        if heartbeat.beats or self._timeout >= self._start_timeout:
            return self._timeout, "lanes.timeout"
        return self._start_timeout, "lanes.start_timeout, which is longer than lanes.timeout"

    def _doing(self, member: int) -> str:
        if member >= 0:
            return self._plan.names[member]
        return "starting" if member == STARTING else "idle"

    def _replace_silent(self, wait: Wait) -> None:
        """Starts another worker if this one has given no sign of life for too long."""
        limit, name = self._patience_with(self._running[0].heartbeat)
        if wait.silent >= self._start_timeout:
            self._refuse_unplaced()
        if wait.silent >= limit:
            self._running[0].kill()
            self._revive((limit, name))

    def _refuse_unplaced(self) -> None:
        handle = self._running[0]
        hindrance = None if handle.node else handle.hindrance()
        if hindrance is not None:
            raise LaneError(
                f"{self.name} found no place within {self._start_timeout:g} s (lanes.start_timeout): it {hindrance}"
            )

    def _waiting_message(self, wait: Wait) -> str:
        request, handle = self._unanswered[0].request, self._running[0]
        member = self._doing(handle.heartbeat.member)
        doing = {"starting": "is starting", "idle": "is between two middleware"}.get(member, f"is in {member}")
        hindrance = handle.hindrance()
        doing = hindrance or doing
        if hindrance is not None and not handle.node:
            doing += f"; without one the run ends after {self._start_timeout:g} s (lanes.start_timeout)"
        elif wait.silent > _SILENT:
            limit, name = self._patience_with(handle.heartbeat)
            doing += f"; without a sign of life it is replaced after {limit:g} s ({name})"
        return (
            f"the run has waited {wait.seconds:.0f} s for {_WORK[self._plan.lane]} {request.number} of {self.name} "
            f"({handle.where}), which {doing}"
        )

    def _error(self, failure: Failure) -> Exception:
        handle = self._running[0]
        if isinstance(failure.error, ModuleNotFoundError) and handle.node not in ("", platform.node()):
            return LaneError(
                f"machine {handle.node}, on which {self.name} runs, has no module {failure.error.name!r}: install it "
                "there, or put it where the cluster's processes find it (PYTHONPATH of `ray start`)"
            )
        add_note(failure.error, f"in the {self._plan.lane} lane, {self.name}:\n{failure.text.rstrip()}")
        return failure.error


def close_all(workers: Sequence[SupervisedWorker]) -> None:
    """Ends several workers, at the same time."""
    for worker in workers:
        worker.ask_to_end()
    deadline = time.monotonic() + _CLOSE_TIMEOUT
    for worker in workers:
        worker.close(max(0.0, deadline - time.monotonic()))


def _ask_to_end(running: list[WorkerHandle]) -> None:
    for handle in running:
        with contextlib.suppress(ChannelClosed):
            handle.channel.send(None)


def _stop(running: list[WorkerHandle], patience: float = _CLOSE_TIMEOUT) -> None:
    _ask_to_end(running)
    _end(running, patience)


def _end(running: list[WorkerHandle], patience: float) -> None:
    """Ends workers, by force if they have not ended within `patience` seconds."""
    deadline = time.monotonic() + patience
    for handle in running:
        if handle.join(max(0.0, deadline - time.monotonic())) is None:
            handle.kill()
        handle.close()
    running.clear()
