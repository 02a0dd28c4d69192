"""The process of a command: how it handles lost output, and signals before there is anything to save."""

import atexit
import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
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
    """Makes standard output and error streams that never fail; call it once, before anything is printed. A stream that
    is closed at the start is opened on the null device, because the next opened file would get its number."""
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
    if errors != "backslashreplace":
        # A terminal that lacks a character shows a replacement; in the locale C Python would raise.
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


_ending = threading.Lock()


def _end(number: int, frame: FrameType | None = None) -> None:
    """Ends the process: as the handler, or in the thread that watches, whichever is first."""
    if signal.getsignal(number) is not _end or not _ending.acquire(blocking=False):
        return
    # Modules are not imported for this: if these are not loaded, nothing is being computed or written.
    signals, scratch = (sys.modules.get(f"minding.engine.{name}") for name in ("process.signals", "data.scratch"))
    code, text = _CODES[signal.Signals(number) if signals is None else signal.Signals[signals.name_of(number)]]
    # A terminal shows ^C at the cursor, after a prompt or a progress bar.
    begun = "\n" if code == _CODES[signal.SIGINT][0] and os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{begun}minding: {text}\n".encode())
    if scratch is not None:
        scratch.remove_unfinished()
    os._exit(code)


def end_at_signals() -> None:
    """From now on, SIGINT and SIGTERM end the process with one line and exit code 130 or 143, whatever it is doing.

    A run takes them meanwhile, see `engine.process.signals.SignalGuard`. Python runs a handler in the main thread
    between two of its own instructions; a thread, which reads the byte that Python writes at once, does not wait for
    that. An exception would not do: in the middle of MindSpore's import it aborts the process. Nor are the signals
    blocked: programs that an environment starts would inherit that, and could not be ended.
    """
    # A program in the background may have been started so that it ignores SIGINT.
    numbers = [number for number in _CODES if signal.getsignal(number) is not signal.SIG_IGN]
    if signal.SIGTERM not in numbers:
        return
    for number in numbers:
        signal.signal(number, _end)
    # If the program is over while the thread ends it, the process waits: its exit code would be another one.
    atexit.register(_ending.acquire, timeout=60)
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(source,), daemon=True, name="signals").start()


def _watch(source: int) -> None:
    while True:
        _end(os.read(source, 1)[0])


def end_by_default() -> None:
    """From now on, SIGINT and SIGTERM end the process at once: it may wait for threads that user code has started."""
    for number in _CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
