"""Signs of life of worker processes, and how long they are waited for."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

from minding.engine.process.spawn import SPAWN

_BEAT = 0.5  # s
_FIRST_REPORT = 10.0  # s of waiting; the next ones after twice as many each
STARTING, BETWEEN = -2, -1


class Pulse:
    """Two numbers in shared memory: beats so far, and the member that is running.

    A thread of the worker makes it beat, also during a long call of Python code; not while the process is stopped, or
    hangs in compiled code that keeps Python from running. Goes to the worker as an argument of its process.

    Attributes:
      cells: int64 ``(2,)``, beats and the number of the member; `STARTING` before the first, `BETWEEN` when none is.
    """

    def __init__(self) -> None:
        self.cells: Any = SPAWN.RawArray(ctypes.c_int64, [0, STARTING])

    def start(self) -> None:
        """In the worker: beats from now on."""

        def beat() -> None:
            while True:
                self.cells[0] += 1
                time.sleep(_BEAT)

        threading.Thread(target=beat, daemon=True, name="pulse").start()


class Wait:
    """How long the main process has waited for a worker, and for a sign of life from it.

    Time in which the main process did not run itself (stopped, or the machine asleep) does not count.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.silent = 0.0
        self._looked = time.monotonic()
        self._beats = -1
        self._report = _FIRST_REPORT

    def look(self, pulse: Pulse) -> None:
        """Counts the time since the last check."""
        now = time.monotonic()
        lived, self._looked = min(now - self._looked, 1.0), now
        self.seconds += lived
        beats = pulse.cells[0]
        self.silent = self.silent + lived if beats == self._beats else 0.0
        self._beats = beats

    def report_due(self) -> bool:
        """Whether it is time to report the wait; less and less often."""
        due = self.seconds >= self._report
        if due:
            self._report *= 2
        return due


def is_stopped(pid: int | None) -> bool:
    """Whether a process has been stopped by a signal; False if that cannot be determined."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
