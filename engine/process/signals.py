"""SIGINT and SIGTERM during a run: the first asks for an orderly end, the second ends the process at once.

Also here: the stack on which signal handlers run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 5.0
"""Seconds from a first signal until a long loop gives up; see `end_if_overdue`."""
_asked: float | None = None
"""When the first signal came to the guard that is active; None before it."""


def _unknown() -> int:
    """Replaces the functions of `tell_senders` before it was called."""
    return 0


_note_sender: Callable[[], object] = _unknown
_sent_by_interrupt: Callable[[], int] = _unknown


def tell_senders(note_sender: Callable[[], object], sent_by_interrupt: Callable[[], int]) -> None:
    """Sets the compiled functions that distinguish a SIGTERM from MindSpore's SIGINT handler; see `SignalGuard`."""
    global _note_sender, _sent_by_interrupt
    _note_sender, _sent_by_interrupt = note_sender, sent_by_interrupt
    note_sender()


def note_sender() -> None:
    """Makes the handler of SIGTERM note the sender again; to be called after the handler was set."""
    _note_sender()


def name_of(number: int) -> str:
    """The name of a signal that was received; SIGINT also for the SIGTERM that MindSpore's handler of SIGINT sends."""
    return "SIGINT" if number == signal.SIGTERM and _sent_by_interrupt() else signal.Signals(number).name


def leave_to_parent(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing; unlike SIG_IGN it is not inherited by programs that this process starts."""


class Interrupted(Exception):
    """The run was asked to end while it waited for something: the iteration is abandoned."""


def end_if_overdue() -> None:
    """For each round of a loop that may take minutes: raises Interrupted if the run was asked to end PATIENCE ago."""
    overdue = _asked is not None and time.monotonic() - _asked > PATIENCE
    if overdue and threading.current_thread() is threading.main_thread():
        raise Interrupted("giving up after a signal")


def raise_end(name: str | None) -> None:
    """Raises the exception with which a program ends after the signal of that name, if it is a signal's."""
    if name in ("SIGINT", "SIGTERM"):
        raise KeyboardInterrupt if name == "SIGINT" else SystemExit(128 + signal.SIGTERM)


class SignalGuard:
    """Context manager that turns the first signal into a request while it is active.

    The first signal calls `on_signal` with its name (``"SIGINT"`` or ``"SIGTERM"``) and returns. From then on both
    signals have the system's own effect: a second one ends the process at once, without hooks or clean-up, even within
    a long call into compiled code; environment workers end with it. The previous handlers are restored on leaving.

    When MindSpore runs a graph, it installs its own handler for SIGINT, which sends SIGTERM to this process, and does
    not remove it. Our kernels note the sender of a SIGTERM (`tell_senders`), so that the name is still ``"SIGINT"``;
    without them it is ``"SIGTERM"`` for both after the first graph. Python delivers signals to the main thread only;
    in other threads the guard does nothing.

    A guard within another one joins it: the handlers and the watch are those of the outer guard, the first signal calls
    `on_signal` of both, so that a task run by another task's middleware does not swallow it, and the notice is that of
    the inner one.
    """

    def __init__(self, on_signal: Callable[[str], None], notice: str | None = None) -> None:
        self._on_signal, self.notice = on_signal, notice
        # The first signal, unless an outer guard, which this one has joined, received it.
        self.received: str | None = None
        # The guards that share the handlers of the outermost one, which is the first of them.
        self._joined: list[SignalGuard] = [self]
        self._previous: dict[signal.Signals, Any] = {}
        # The thread or the handler pops it, whichever is first.
        self._unanswered = [True]

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is not threading.main_thread():
            return self
        outer = _guard_of(signal.getsignal(signal.SIGTERM))
        if outer is not None:
            self._joined = outer._joined
            self._joined.append(self)
            return self
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        _note_sender()
        self._begin_watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._joined[0] is not self:
            self._joined.remove(self)
        if not self._previous:
            return
        global _asked
        _asked = None
        self._end_watch()
        for number, handler in self._previous.items():
            # None stands for a handler that was not set from Python and that Python cannot set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()
        _note_sender()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = name_of(number)
        self._write_notice()
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self.received is not None:
            # Both signals arrived before the handlers were removed.
            signal.raise_signal(signal.Signals[name])
        global _asked
        self.received, _asked = name, time.monotonic()
        for guard in reversed(self._joined):
            guard._on_signal(name)

    # Answers a signal while compiled code keeps Python's handlers waiting: a thread reads the byte that Python's C
    # handler writes at once (`signal.set_wakeup_fd`), writes the notice, and gives a second signal the system's own
    # effect.

    def _begin_watch(self) -> None:
        self._source, self._sink = os.pipe()
        os.set_blocking(self._sink, False)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="signals")
        self._thread.start()
        self._earlier_sink = signal.set_wakeup_fd(self._sink, warn_on_full_buffer=False)

    def _end_watch(self) -> None:
        signal.set_wakeup_fd(self._earlier_sink)
        os.write(self._sink, b"\0")
        self._thread.join()
        os.close(self._sink)
        os.close(self._source)

    def _watch(self) -> None:
        while (number := os.read(self._source, 1)[0]) != 0:
            if number in SIGNALS and signal.getsignal(number) == self._handle:
                self._write_notice()
                for each in SIGNALS:
                    # `signal.signal` belongs to the main thread.
                    ctypes.CDLL(None).signal(int(each), None)

    def _write_notice(self) -> None:
        notice = next((guard.notice for guard in reversed(self._joined) if guard.notice is not None), None)
        if notice is not None:
            text = f"minding: {notice}; a second signal (Ctrl-C again) ends the process at once\n"
            with contextlib.suppress(IndexError, OSError):
                self._unanswered.pop()
                # The line may contain a progress bar.
                os.write(2, f"\n{text}".encode() if os.isatty(2) else text.encode())


def _guard_of(handler: Any) -> SignalGuard | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, SignalGuard) else None


_masks = threading.local()


def _hold_back() -> None:
    """Before a fork: until the new process gives up the watch's pipe, a signal to it would be one to this process."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _resume() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _give_back() -> None:
    """In a forked process: its signals are not its parent's, and an environment may have to end it by one."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    own = [number for number in SIGNALS if str(getattr(handlers[number], "__module__", "")).startswith("minding.")]
    if own:
        signal.set_wakeup_fd(-1)
    for number in own:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _resume()


os.register_at_fork(before=_hold_back, after_in_parent=_resume, after_in_child=_give_back)


class _Stack(ctypes.Structure):
    """`stack_t` of Linux."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_SS_DISABLE = 2
_STACK_SIZE = 1 << 16
_stacks: list[Any] = []
"""Stacks of handlers, which are in use until the process ends."""


def use_signal_stack() -> None:
    """Lets signal handlers of the calling thread run on a separate stack, on Linux.

    In the compiled loops of oneDNN, with which MindSpore multiplies matrices on CPU, the stack pointer points into a
    buffer: a handler that interrupts them would overwrite the memory below. Python's handlers use the separate stack
    if there is one. A thread that already has one, as under `faulthandler`, keeps it.
    """
    if not sys.platform.startswith("linux"):
        return
    sigaltstack = ctypes.CDLL(None, use_errno=True).sigaltstack
    found = _Stack()
    if sigaltstack(None, ctypes.byref(found)) != 0 or not found.flags & _SS_DISABLE:
        return
    memory = ctypes.create_string_buffer(_STACK_SIZE)
    if sigaltstack(ctypes.byref(_Stack(ctypes.addressof(memory), 0, _STACK_SIZE)), None) != 0:
        raise OSError(ctypes.get_errno(), "the system refused a stack for signal handlers")
    _stacks.append(memory)
