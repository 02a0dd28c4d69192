"""SIGINT and SIGTERM during a run: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalGuard:
    """Context manager that turns signals into a request, for as long as it is entered.

    The first signal calls `on_signal` with its name (``"SIGINT"`` or ``"SIGTERM"``) and returns. A second one
    restores the default handlers and raises KeyboardInterrupt or ``SystemExit(128 + number)`` where the
    program stands; a third one then does what Python does by default. The handlers of before are restored on
    leaving. Python delivers signals to the main thread only: elsewhere the guard does nothing. A guard within
    another passes its first signal on, so that a task run by another task's middleware does not keep it.
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
            # None stands for a handler that was not set from Python and that Python cannot set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            self._raise_now(signal.Signals(number))
        self._signalled = True
        self._on_signal(signal.Signals(number).name)
        outer = getattr(self._previous.get(signal.Signals(number)), "__self__", None)
        if isinstance(outer, SignalGuard):
            outer._handle(number, frame)

    def _raise_now(self, number: signal.Signals) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
