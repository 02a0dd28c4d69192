"""What backends share in dealing with environments that fail."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any, ClassVar

_log = logging.getLogger("minding.envs")


class FaultStreak:
    """Tells what fails now and then from what is broken for good, whose restarts would never make a transition.

    `step` is to be counted up by the owner at each step.
    """

    limit: ClassVar[int] = 10
    """Faults in successive steps; what fails in one step of ten does not reach it."""

    def __init__(self) -> None:
        self.step = 0
        # What failed, to the step of its last fault and the number of successive steps with one.
        self._last: dict[Hashable, tuple[int, int]] = {}

    def is_broken(self, what: Hashable) -> bool:
        """Notes a fault of `what` in this step; whether it failed in each of the last `limit` steps."""
        step, count = self._last.get(what, (-1, 0))
        count = count + 1 if step == self.step - 1 else 1
        self._last[what] = (self.step, count)
        return count >= self.limit


def describe(error: BaseException) -> str:
    """``Type: message`` of an exception, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def close_env(env: Any, label: str) -> None:
    """Closes an environment; one that cannot even close is named in a warning, because nothing is lost by it."""
    try:
        env.close()
    except Exception as error:
        _log.warning("%s failed in close: %s", label, describe(error))
