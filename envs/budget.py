"""The time that the check of an environment may take; part of `envs.check`."""

from __future__ import annotations

import time

SECONDS = 30.0
"""Time limit of a check by default, in seconds."""


class Budget:
    """The time that is left for a check, counted from when the object is made.

    Args:
      seconds: time limit in seconds.

    Attributes:
      each: seconds that it takes to make one environment and step it once, as far as is known.
      fix: advice for findings that the time did not suffice for.
    """

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self._seconds = seconds
        self.each = 0.0
        self.fix = f"raise the limit of {seconds:g} s: minding check-env --seconds, or check_env(..., seconds=)"

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds that are left; negative when the time is over."""
        return self._seconds - self.spent

    def covers(self, envs: int) -> bool:
        """Whether the time that is left suffices to make and step that many environments."""
        return self.left > envs * self.each
