"""A limit on the time that one call of an environment in this process may take, and a message about long waits.

A thread checks the current call of every source. A call that takes more than a few seconds is named in a warning. At
the limit the main thread gets a signal whose handler raises `Hang` within the call. Compiled code that does not return
to Python cannot be interrupted: after a grace period the process prints a message and ends with exit code 1, so that
the run can be resumed from its last checkpoint.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from minding.engine.error_origin import user_location
from minding.envs.guards.faults import Hang, frames_of

_log = logging.getLogger("minding.envs")
WARN_AFTER = 10.0
"""Seconds until a call is named in a warning, or a third of the limit if less; doubled after each warning."""
GRACE = 10.0
"""Seconds that a call has to react to the interruption."""
_TICK = 1.0  # s
# SIGALRM, SIGUSR1 and SIGUSR2 are used by environments and schedulers; this signal is not, as far as is known.
_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR2)
_DEBUGGERS = frozenset({"bdb", "pdb", "pydevd", "debugpy"})


class Activity:
    """The current activity of a group of environments: written by the thread that steps them, read by the watchdog.

    Attributes:
      running: int64 ``(1,)``, row of the environment that is running; each environment has its own time limit.
    """

    __slots__ = ("call", "number", "running", "thread")

    def __init__(self, running: Any = (0,)) -> None:
        self.call = ""
        self.number = 0
        self.thread = 0
        self.running = running

    def begin(self, call: str) -> None:
        """Records the begin of a call; `end` must follow, whatever happens."""
        self.number += 1
        self.thread = threading.get_ident()
        self.call = call

    def end(self) -> None:
        """Records that the call returned."""
        self.call = ""

    @contextlib.contextmanager
    def during(self, call: str) -> Iterator[None]:
        """Records the begin and the end of a call, which may be part of another call."""
        outer = self.call
        self.begin(call)
        try:
            yield
        finally:
            self.call = outer

    @property
    def state(self) -> tuple[int, str, int]:
        """The current call and environment; it changes with each of them."""
        return self.number, self.call, int(self.running[0])


class Watch:
    """Watches an activity until the watch is closed or garbage-collected.

    Args:
      limit: time limit of one call in seconds.
    """

    def __init__(self, activity: Activity, who: Callable[[], str], limit: float, key: str = "env.step_timeout") -> None:
        self.limit = limit
        self._activity = activity
        self._who = who
        self._key = key
        self._seen = activity.state
        self._waited = 0.0
        self._warn_at = 0.0
        self._overdue = False
        _watchdog.add(self)

    def close(self) -> None:
        _watchdog.discard(self)

    def look(self, lived: float) -> None:
        """Adds `lived` seconds to the time of a call that is still running; warns, interrupts or gives up."""
        state = self._activity.state
        if not self._activity.call or state != self._seen:
            self._seen, self._waited, self._overdue = state, 0.0, False
            self._warn_at = min(WARN_AFTER, self.limit / 3)
            return
        if self._debugged():
            return
        self._waited += lived
        if self._waited >= self.limit + GRACE:
            self._give_up()
        elif self._waited >= self.limit:
            self._interrupt()
        elif self._waited >= self._warn_at:
            self._warn_at *= 2
            _log.warning(
                "waiting for %s: %s() has been running for %.3g s%s; the limit is %s=%g s",
                self._who(), self._activity.call, self._waited, self._location(), self._key, self.limit,
            )  # fmt: skip

    def check(self, frame: FrameType | None) -> None:
        """Raises `Hang` if the call is overdue and still the same one; called by the signal's handler."""
        if self._overdue and self._activity.call and self._activity.state == self._seen:
            raise Hang(self._verdict(user_location(frames_of(frame))))

    def _verdict(self, where: str) -> str:
        return f"{self._activity.call}() did not return within {self.limit:g} s ({self._key}){where}"

    def _interrupt(self) -> None:
        self._overdue = True
        # Python runs signal handlers only in the main thread; a call in another thread ends with the grace period.
        thread = self._activity.thread
        if thread == threading.main_thread().ident and signal.getsignal(_SIGNAL) is _on_signal:
            signal.pthread_kill(thread, _SIGNAL)

    def _give_up(self) -> NoReturn:
        text = (
            f"minding: {self._who()}: {self._verdict(self._location())} and cannot be interrupted; process "
            f"{os.getpid()} ends without saving, the last checkpoint stays. With env.backend=subprocess "
            "it would be an ordinary error.\n"
        )
        os.write(2, text.encode())
        os._exit(1)

    def _location(self) -> str:
        return user_location(frames_of(sys._current_frames().get(self._activity.thread)))

    def _debugged(self) -> bool:
        """Whether the call is stopped in a debugger."""
        frame = sys._current_frames().get(self._activity.thread)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).partition(".")[0] in _DEBUGGERS:
                return True
            frame = frame.f_back
        return False


class _Watchdog:
    """The thread that serves all watches; it runs while there are any."""

    def __init__(self) -> None:
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(_SIGNAL, _on_signal)
        with self._lock:
            self._watches.add(watch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="minding-watchdog")
                self._thread.start()
        self._wake.set()

    def discard(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def all(self) -> list[Watch]:
        return list(self._watches)

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._thread = None
                    return
            tick = min(_TICK, *(watch.limit / 10 for watch in watches))
            # Time during which the whole process was stopped does not count.
            lived = min(time.monotonic() - last, 2 * tick)
            last = time.monotonic()
            for watch in watches:
                watch.look(lived)
            del watches, watch
            self._wake.wait(tick)
            self._wake.clear()


def _on_signal(number: int, frame: FrameType | None) -> None:
    for watch in _watchdog.all():
        watch.check(frame)


_watchdog = _Watchdog()


@contextlib.contextmanager
def watched(call: str, who: str, limit: float, key: str = "env.step_timeout") -> Iterator[None]:
    """Watches one call, the body of a ``with`` statement, in which `Hang` is raised at the limit."""
    activity = Activity()
    watch = Watch(activity, lambda: who, limit, key)
    try:
        with activity.during(call):
            yield
    finally:
        watch.close()
