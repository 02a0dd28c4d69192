"""The console of the user: the standard streams of a command, and messages on them."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import IO, TextIO

from minding.engine.errors import printable

_own: tuple[TextIO, TextIO] | None = None
"""Standard output and error of the command that runs."""


@contextlib.contextmanager
def own_streams() -> Iterator[None]:
    """In the body of the ``with``, `stdout` and `stderr` are the streams that are standard at its beginning. An
    environment may replace `sys.stdout`, and what it prints then goes elsewhere; results do not. At the end of the
    body, both streams are standard again."""
    global _own
    outer, _own = _own, (sys.stdout, sys.stderr)
    streams = _own
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        _own = outer


def stdout() -> TextIO:
    """The stream for results."""
    return sys.stdout if _own is None else _or_stand_in(_own[0], sys.stdout)


def stderr() -> TextIO:
    """The stream for messages."""
    return sys.stderr if _own is None else _or_stand_in(_own[1], sys.stderr)


def _or_stand_in(own: TextIO, now: TextIO) -> TextIO:
    """`own`, or the stand-in that a progress bar of rich has for it: it prints above the bar."""
    return now if getattr(now, "rich_proxied_file", None) is own else own


# Python 3.10 does not accept the type argument that type checkers require.
class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to `stderr`, which is another stream while a progress bar is drawn."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    def format(self, record: logging.LogRecord) -> str:
        """The message, which may contain text from files."""
        return printable(super().format(record), lines=True)

    @property
    def stream(self) -> IO[str]:  # type: ignore[override]
        return stderr()


def console_logger() -> logging.Logger:
    """The logger for messages to the user; prints to stderr unless the program has set up logging itself."""
    logger = logging.getLogger("minding")
    if not logger.hasHandlers():
        logger.addHandler(_StderrHandler())
        logger.setLevel(logging.INFO)
    return logger


WARNING_INTERVAL = 30.0  # s


class Throttle:
    """Decides whether it is time for the next message.

    Args:
      interval: seconds between two messages.
    """

    def __init__(self, interval: float = WARNING_INTERVAL) -> None:
        self._interval = interval
        self._next = float("-inf")

    def due(self) -> bool:
        """True at the first call, and then once per interval."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval
        return True
