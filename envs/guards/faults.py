"""Handling of environments that fail, shared by all backends."""

import logging
import re
from collections.abc import Hashable
from types import FrameType
from typing import Any, ClassVar

from minding.engine.error_origin import Place, is_of_libraries, places_of, user_location
from minding.envs.guards import open_envs

_log = logging.getLogger("minding.envs")
START_TIMEOUT = 120.0
"""Seconds in which a new environment must be made: packages are imported, in a worker also NumPy and Gymnasium."""


class Hang(BaseException):
    """A call that took too long. It is not an `Exception`, so that an environment's own handlers let it pass."""


class FaultStreak:
    """Distinguishes occasional failures from permanent ones, whose restarts would never produce a transition.

    The owner increments `step` at each step.
    """

    limit: ClassVar[int] = 10
    """Faults in successive steps that count as permanent; an environment that fails in one step of ten is below it."""

    def __init__(self) -> None:
        self.step = 0
        # For each thing that failed, the step of its last fault and the number of successive steps with a fault.
        self._last: dict[Hashable, tuple[int, int]] = {}

    def is_broken(self, what: Hashable) -> bool:
        """Records a fault of `what` in this step; returns whether it failed in each of the last `limit` steps."""
        step, count = self._last.get(what, (-1, 0))
        count = count + 1 if step == self.step - 1 else 1
        self._last[what] = (self.step, count)
        return count >= self.limit


def describe(error: BaseException) -> str:
    """``Type: message (file:line in function)`` of an exception, in one line; the place is in the user's code. If the
    environment lacks the interface that the caller expects, the text names that interface."""
    if isinstance(error, Hang):
        return str(error)
    frames = places_of(error)
    text = f"{type(error).__name__}: {' '.join(str(error).split())}{user_location(frames)}"
    inner = frames[-1][0] if frames else ""
    if isinstance(error, ValueError) and "unpack (expected 5" in str(error) and is_of_libraries(inner):
        return f"{text}; step has to return (observation, reward, terminated, truncated, info)"
    if isinstance(error, TypeError) and re.search(r"reset\(\) got an unexpected keyword argument '\w+'", str(error)):
        return f"{text}; reset has to take seed and options: def reset(self, *, seed=None, options=None)"
    return text


def frames_of(frame: FrameType | None) -> list[Place]:
    """The frames that led to `frame`, outermost first."""
    places = []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return places[::-1]


def close_env(env: Any, label: str) -> BaseException | None:
    """Closes an environment; an error in `close` is only a warning, because it does no harm."""
    open_envs.remove(env)
    try:
        env.close()
    except (Exception, SystemExit, Hang) as error:
        _log.warning("%s failed in close: %s", label, describe(error))
        return error
    return None
