"""SIGINT and SIGTERM during a run: the first asks for an orderly end, the second ends the process at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """The run was asked to end while it waited for something: the iteration is abandoned."""


class SignalGuard:
    """Context manager that turns the first signal into a request while it is active.

    The first signal calls `on_signal` with its name (``"SIGINT"`` or ``"SIGTERM"``) and returns. From then on both
    signals have the system's own effect: a second one ends the process by that signal, without hooks or clean-up and
    also within a long call into compiled code; environment workers end with it. The previous handlers are restored
    on leaving. A graph that MindSpore runs sets its own handler for SIGINT, which sends SIGTERM, and leaves it
    there: from then on the name is ``"SIGTERM"`` for both. Python delivers signals to the main thread only: elsewhere
    the guard does nothing. A guard within another passes its first signal on, so that a task run by another task's
    middleware does not keep it.
    """

    def __init__(self, on_signal: Callable[[str], None]) -> None:
        self._on_signal = on_signal
        self._previous: dict[signal.Signals, Any] = {}
        self._signalled = False

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            if self._signalled and _guard_of(handler) is not None:
                continue  # the outer guard has had its first signal: a second one still ends the process
            # None stands for a handler that was not set from Python and that Python cannot set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self._signalled:
            # Both came before the handlers were taken away.
            signal.raise_signal(number)
        self._signalled = True
        self._on_signal(signal.Signals(number).name)
        outer = _guard_of(self._previous.get(signal.Signals(number)))
        if outer is not None:
            outer._handle(number, frame)


def _guard_of(handler: Any) -> SignalGuard | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, SignalGuard) else None
