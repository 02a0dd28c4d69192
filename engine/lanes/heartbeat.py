"""Signs of life of a worker process, and the time of waits for a worker."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

from minding.engine.lanes.transport import STARTING, Heartbeat
from minding.engine.process.spawn import SPAWN

_BEAT = 0.5  # s
_FIRST_REPORT = 10.0  # s of waiting; the next ones after twice as many each


class SharedHeartbeat:
    """A `Heartbeat` of two numbers in shared memory.

    A thread of the worker makes it beat, even during a long call of Python code, but not while the process is stopped
    or hangs in compiled code that keeps Python from running. The worker receives it as an argument of its process.
    """

    def __init__(self) -> None:
        self._cells: Any = SPAWN.RawArray(ctypes.c_int64, [0, STARTING])

    @property
    def beats(self) -> int:
        return int(self._cells[0])

    @property
    def member(self) -> int:
        return int(self._cells[1])

    @member.setter
    def member(self, number: int) -> None:
        self._cells[1] = number

    def start(self) -> None:
        """In the worker: beats from now on."""

        def beat() -> None:
            while True:
                self._cells[0] += 1
                time.sleep(_BEAT)

        threading.Thread(target=beat, daemon=True, name="heartbeat").start()


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
