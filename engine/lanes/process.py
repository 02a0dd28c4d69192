"""A worker process as its lane sees it: tickets in, answers out, and a new process when one dies."""

from __future__ import annotations

import collections
import contextlib
import logging
import pickle
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

import cloudpickle

from minding.engine.errors import LaneError
from minding.engine.lanes.messages import Answer, Failure, Ticket
from minding.engine.lanes.pulse import STARTING, Pulse, Wait, is_stopped
from minding.engine.lanes.transport import ChannelClosed, SharedMemoryChannel
from minding.engine.lanes.weights import WeightBoard
from minding.engine.lanes.worker import WorkerPlan, main
from minding.engine.notes import add_note
from minding.engine.process.signals import Interrupted
from minding.engine.process.spawn import SPAWN, lean_start, stop_at_exit
from minding.engine.types import StateDict

_log = logging.getLogger("minding.lanes")
_PATIENCE = 0.05  # s between two looks at whether the run was interrupted
_CLOSE_TIMEOUT = 2.0  # s
_WORK = {"collect": "rollout", "evaluate": "evaluation"}
_START_TIMEOUT = 60.0  # s until its first sign of life
_SILENT = 5.0  # s without a sign of life that are worth a word


class WorkerProcess:
    """One worker, restarted with its last state if it dies; its unanswered tickets are given to it again.

    What it had half done is lost, and repeated from the state after its last answer, with the same weights.

    Attributes:
      name: for messages.
      state: after its last answer, or to start with; None: as it is built.
      restarts: how often it died and was restarted.

    Args:
      name: for messages.
      timeout: seconds without a sign of life after which it counts as dead.
      limit: deaths in a row, without an answer in between, that end the run.
    """

    def __init__(self, name: str, timeout: float, limit: int = 3) -> None:
        self.name = name
        self.restarts = 0
        self.state: StateDict | None = None
        self._timeout, self._limit = timeout, limit
        self._pulse = Pulse()
        self._plan: WorkerPlan
        self._board: WeightBoard
        self._unanswered: collections.deque[Ticket] = collections.deque()
        self._deaths = 0
        self._arrived: Answer | None = None
        self._running: list[tuple[BaseProcess, SharedMemoryChannel]] = []
        stop_at_exit(self, _stop, self._running)

    @property
    def pid(self) -> int | None:
        """Of the process; None when there is none."""
        return self._running[0][0].pid if self._running else None

    @property
    def unanswered(self) -> int:
        """Tickets under way."""
        return len(self._unanswered)

    def prepare(self, plan: WorkerPlan, board: WeightBoard) -> None:
        """Says what the worker is; a ticket's slot of `board` is released once it is answered."""
        self._plan, self._board = plan, board
        self._pickled = cloudpickle.dumps(plan)

    def submit(self, ticket: Ticket) -> None:
        """Gives the worker a ticket; starts its process with the first one."""
        self._unanswered.append(ticket)
        if not self._running:
            self._start()
        elif not self._try_send(ticket):
            self._revive()

    def answer(self, interrupted: Callable[[], bool]) -> Answer:
        """Waits for the answer to the oldest ticket.

        Raises:
          Interrupted: `interrupted()` became true meanwhile.
          LaneError: the worker died `limit` times in a row.
          Exception: what a member raised, with the worker's traceback as a note.
        """
        wait = Wait()
        while True:
            answer = self.poll(_PATIENCE)
            if answer is not None:
                return answer
            if interrupted():
                raise Interrupted(f"waiting for {self.name}")
            wait.look(self._pulse)
            if wait.report_due():
                _log.warning("%s", self._who_is_waited_for(wait))
            if wait.silent >= max(self._timeout, 0.0 if self._pulse.cells[0] else _START_TIMEOUT):
                self._running[0][0].kill()
                self._revive(f"gave no sign of life for {wait.silent:.0f} s (lanes.timeout)")

    def poll(self, timeout: float = 0.0) -> Answer | None:
        """As `answer`, but returns None if there is none within `timeout` seconds."""
        self.look(timeout)
        answer, self._arrived = self._arrived, None
        if answer is None:
            return None
        ticket = self._unanswered.popleft()
        assert ticket.number == answer.number
        self._board.release(ticket.slot)
        self._deaths = 0
        self.state = answer.state
        return answer

    def look(self, timeout: float = 0.0) -> None:
        """Fetches the answer to the oldest ticket if it comes within `timeout` seconds, but leaves it for `poll`.

        The state of the worker and the slot of the ticket stay as they are, so that nothing depends on when an answer
        came that is not yet needed. A process that died is started again.

        Raises:
          LaneError, Exception: as `answer`.
        """
        if self._arrived is not None:
            return
        if not self._running:
            # The run continues after one that an error ended.
            self._start()
        try:
            message = self._running[0][1].receive(timeout)
        except TimeoutError:
            return
        except ChannelClosed:
            self._revive()
            return
        if isinstance(message, Failure):
            raise self._error(message)
        self._arrived = message

    def ask_to_end(self) -> None:
        """Lets the process end itself once it has done its tickets."""
        _ask_to_end(self._running)

    def close(self, patience: float = _CLOSE_TIMEOUT) -> None:
        """Ends the process, by force after `patience` seconds; tickets under way are released."""
        _stop(self._running, patience)
        self._arrived = None
        while self._unanswered:
            self._board.release(self._unanswered.popleft().slot)

    def _start(self) -> None:
        here, there = SPAWN.Pipe()
        self._pulse = Pulse()
        process = SPAWN.Process(
            target=main, args=(there, self._board, self._pulse), name=f"minding-{self.name.replace(' ', '-')}"
        )
        with lean_start():
            process.start()
        # Only the worker holds the other end now, so that its death closes the channel.
        there.close()
        # Not as arguments: `start` never returns if the process dies before it has read more than a pipe holds.
        with contextlib.suppress(OSError):
            here.send_bytes(pickle.dumps((self._pickled, self.state)))
        self._running.append((process, SharedMemoryChannel(here, self._plan.depth)))
        for ticket in self._unanswered:
            self._try_send(ticket)

    def _try_send(self, ticket: Ticket) -> bool:
        try:
            self._running[0][1].send(ticket)
        except ChannelClosed:
            return False
        return True

    def _revive(self, ended: str | None = None) -> None:
        """A new process in place of one that died; answers it had sent were received before."""
        process, _ = self._running[0]
        process.join(_CLOSE_TIMEOUT)
        code = process.exitcode
        _end(self._running, patience=0.0)
        # Its ticket is given out again with the others.
        self._arrived = None
        self._deaths += 1
        ended = ended or ("does not answer" if code is None else f"ended with exit code {code}")
        if self._deaths >= self._limit:
            raise LaneError(
                f"the process of {self.name} died {self._deaths} times before it answered; it last {ended}: "
                "run without async_mode to see whether an environment brings its process down"
            )
        _log.warning("the process of %s %s; it is started again", self.name, ended)
        self.restarts += 1
        self._start()

    def _who_is_waited_for(self, wait: Wait) -> str:
        ticket = self._unanswered[0]
        member = self._pulse.cells[1]
        doing = "is starting" if member == STARTING else "is between two middleware"
        if member >= 0:
            doing = f"is in {self._plan.names[member]}"
        if is_stopped(self.pid):
            doing = f"is stopped: `kill -CONT {self.pid}` lets it continue"
        if wait.silent > _SILENT:
            doing += f"; without a sign of life it is replaced after {self._timeout:g} s (lanes.timeout)"
        return (
            f"the run has waited {wait.seconds:.0f} s for {_WORK[self._plan.lane]} {ticket.number} of {self.name} "
            f"(process {self.pid}), which {doing}"
        )

    def _error(self, failure: Failure) -> Exception:
        add_note(failure.error, f"in the {self._plan.lane} lane, {self.name}:\n{failure.text.rstrip()}")
        return failure.error


def close_all(workers: Sequence[WorkerProcess]) -> None:
    """Ends the processes of several workers, at the same time."""
    for worker in workers:
        worker.ask_to_end()
    deadline = time.monotonic() + _CLOSE_TIMEOUT
    for worker in workers:
        worker.close(max(0.0, deadline - time.monotonic()))


def _ask_to_end(running: list[tuple[BaseProcess, SharedMemoryChannel]]) -> None:
    for _, channel in running:
        with contextlib.suppress(ChannelClosed):
            channel.send(None)


def _stop(running: list[tuple[BaseProcess, SharedMemoryChannel]], patience: float = _CLOSE_TIMEOUT) -> None:
    _ask_to_end(running)
    _end(running, patience)


def _end(running: list[tuple[BaseProcess, SharedMemoryChannel]], patience: float) -> None:
    """Ends processes, by force if they have not ended within `patience` seconds."""
    deadline = time.monotonic() + patience
    for process, channel in running:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
        process.join()
        process.close()
        channel.close()
    running.clear()
