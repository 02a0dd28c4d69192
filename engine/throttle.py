"""Limits how often a message is shown that could appear at every step."""

from __future__ import annotations

import time

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
