"""Ends of episodes as other programs write them: only values that are clearly true or false count as flags."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.types import Array

_EXPECTED = "true or false, as bool or as 0 and 1"


def as_flags(values: Any, name: str, first: int = 0, unit: str = "step") -> Array:
    """An array of flags as bool, of the same shape.

    Args:
      values: bools, or numbers that are 0 or 1.
      name: name of the values, for the message.
      first: number of the first value, for the message.
      unit: unit of that number, for the message.
    Raises:
      ValueError: a value is neither; names the first such value and its number.
    """
    flags = np.asarray(values)
    if flags.dtype == np.bool_:
        return flags
    if flags.dtype.kind not in "iuf":
        raise ValueError(f"{name} is {_shown(values, flags)}, expected {_EXPECTED}")
    wrong = np.flatnonzero((flags != 0) & (flags != 1))
    if len(wrong):
        place = f" at {unit} {first + int(wrong[0])}" if flags.ndim else ""
        raise ValueError(f"{name} is {flags.flat[wrong[0]]}{place}, expected {_EXPECTED}")
    return flags.astype(np.bool_)


def ending(terminated: Any, truncated: Any, steps: int) -> tuple[bool, bool]:
    """Returns whether an episode terminated, and whether it was truncated.

    Args:
      terminated, truncated: one flag for the last step, or one for each step.
      steps: number of steps of the episode.
    Raises:
      ValueError: a value is not a flag, is set before the last step, or both are.
    """
    named = (("terminated", terminated), ("truncated", truncated))
    ends = [_at_last_step(values, name, steps) for name, values in named]
    if all(ends):
        raise ValueError(
            "terminated and truncated are both set: expected one of them at most; a true end within the time limit is "
            "terminated only"
        )
    return ends[0], ends[1]


def _at_last_step(values: Any, name: str, steps: int) -> bool:
    flags = as_flags(values, name)
    if not flags.ndim:
        return bool(flags)
    if flags.shape == (steps, 1):
        flags = flags[:, 0]
    if flags.shape != (steps,):
        raise ValueError(f"{name} has the shape {flags.shape}, expected one flag, or one for each of the {steps} steps")
    if flags[:-1].any():
        raise ValueError(
            f"{name} is set at step {int(np.argmax(flags))} of {steps}, but the episode continues: expected it at the "
            "last step only; make two episodes of it"
        )
    return bool(flags[-1])


def _shown(values: Any, flags: Array) -> str:
    return f"{values!r}"[:60] if not flags.ndim else f"{flags.dtype} {flags.shape}"
