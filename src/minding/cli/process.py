"""The process of a command: how it handles lost output, and signals before there is anything to save."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, TextIO

_CODES = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "ended by SIGTERM")}
EXIT_CODES = {number.name: code for number, (code, _) in _CODES.items()}
"""Exit codes of commands that a signal ended, by the signal's name."""
_NOWHERE = (errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF, errno.EDQUOT, errno.EFBIG)


class _Output(io.FileIO):
    """A standard stream that is dropped once it cannot be written, because its reader is gone or its disk is full."""

    on_loss: Callable[[str], None] | None = None

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NOWHERE:
                raise
            # The descriptor is redirected, because compiled code and child processes also write to it.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.on_loss is not None:
                self.on_loss(os.strerror(error.errno))
            return len(data)


class _Buffer(io.BufferedWriter):
    """The buffer of a standard stream; it stays open, as the stream does."""

    def close(self) -> None:
        self.flush()


class _Stream(io.TextIOWrapper):
    """A standard stream that stays open: an environment may close it, or put another stream around its buffer, which
    closes the buffer when it is deleted. The results of the command come later."""

    def close(self) -> None:
        self.flush()

    def detach(self) -> Any:
        """The buffer, which this stream continues to use."""
        self.flush()
        return self.buffer


def prepare_output() -> None:
    """Makes standard output and error streams that never fail; call it once, before anything is printed.

    A stream that is closed at the start is opened on the null device, because the next opened file would get its
    number.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            while os.open(os.devnull, os.O_RDWR) < number:
                pass
    sys.stdout = _stream(1, sys.stdout)
    sys.stderr = _stream(2, sys.stderr)


def _stream(number: int, replaced: TextIO | None) -> TextIO:
    raw: Any = _Output(number, "wb", closefd=False)
    encoding, errors = ("utf-8", "replace") if replaced is None else (replaced.encoding, replaced.errors)
    if errors == "strict":
        # A terminal that lacks a character shows a replacement.
        errors = "replace"
    if replaced is not None:
        replaced.flush()
    return _Stream(_Buffer(raw), encoding, errors, line_buffering=number == 2 or os.isatty(number))


def report_lost_output(message: str) -> None:
    """From now on, prints `message`, with ``{reason}`` filled in, on standard error when standard output is lost."""
    from minding.engine.console import stderr, stdout

    raw = getattr(getattr(stdout(), "buffer", None), "raw", None)
    if isinstance(raw, _Output):
        raw.on_loss = lambda reason: print(message.format(reason=reason), file=stderr())


class _Waiter:
    """Ends the process at the first SIGINT or SIGTERM, whatever the main thread is doing.

    The signals are blocked in the main thread and in all threads that it starts, and received by a thread that waits
    for them. A handler would not suffice: Python runs it in the main thread between two of its own instructions, an
    exception in the middle of MindSpore's import aborts the process, and each graph that MindSpore runs sets its own
    handler.
    """

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        self._numbers = numbers
        self._done = False
        self._thread = threading.Thread(target=self._wait, daemon=True, name="signals")

    def start(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        self._thread.start()

    def stop(self) -> None:
        """Returns the signals to Python's own handlers."""
        self._done = True
        signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)

    def _wait(self) -> None:
        number = signal.sigwait(self._numbers)
        if not self._done:
            _end(number)


def _end(number: int, frame: FrameType | None = None) -> None:
    code, text = _CODES[signal.Signals(number)]
    # A terminal shows ^C at the cursor, after a prompt or a progress bar.
    begun = "\n" if number == signal.SIGINT and os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{begun}minding: {text}\n".encode())
    # The module is not imported for this: if it is not loaded, nothing is being written.
    scratch = sys.modules.get("minding.engine.data.scratch")
    if scratch is not None:
        scratch.remove_unfinished()
    os._exit(code)


_waiter: _Waiter | None = None


def end_at_signals() -> None:
    """From now on, SIGINT and SIGTERM end the process with one line and exit code 130 or 143."""
    global _waiter
    # A program in the background may have been started so that it ignores SIGINT.
    numbers = [number for number in _CODES if signal.getsignal(number) is not signal.SIG_IGN]
    if signal.SIGTERM not in numbers:
        return
    _waiter = _Waiter(numbers)
    _waiter.start()


@contextlib.contextmanager
def signals_reach_the_run() -> Iterator[None]:
    """In the body of the ``with``, a run handles signals and ends cleanly; afterwards they end the process again."""
    waiter = _waiter
    if waiter is not None:
        waiter.stop()
    try:
        yield
    finally:
        if waiter is not None:
            for number in _CODES:
                # Threads that were started meanwhile do not block the signals.
                signal.signal(number, _end)
            end_at_signals()


def end_by_default() -> None:
    """From now on, SIGINT and SIGTERM end the process at once: it may wait for threads that user code has started."""
    for number in _CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _CODES)
