"""Messages for the user, on the console."""

from __future__ import annotations

import logging
import sys
import time
from typing import IO

from minding.engine.errors import printable


# Python 3.10 does not accept the type argument that type checkers require.
class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever `sys.stderr` is now: a progress bar replaces it while it is drawn."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    def format(self, record: logging.LogRecord) -> str:
        """The message, which may contain text from files."""
        return printable(super().format(record), lines=True)

    @property
    def stream(self) -> IO[str]:  # type: ignore[override]
        return sys.stderr


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
