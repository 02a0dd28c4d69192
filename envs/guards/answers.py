"""Checks that the return values of an environment's methods have the form of Gymnasium's interface."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.errors import EnvError
from minding.engine.types import Array

FLAGS = (bool, np.bool_)
"""Usual types of flags; values of other types are examined."""


class InterfaceError(EnvError):
    """A call returned something that the interface does not allow. A restart would not help."""


def step_answer(answer: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The five values of a step."""
    if isinstance(answer, (tuple, list)) and len(answer) == 5:
        return tuple(answer)
    expected = "expected (observation, reward, terminated, truncated, info)"
    if isinstance(answer, (tuple, list)) and len(answer) == 4:
        raise InterfaceError(
            f"step returned 4 values, as in the old Gym interface; {expected}: where `done` was true, return "
            "truncated=True if a time limit ended the episode, else terminated=True"
        )
    given = f"{len(answer)} values" if isinstance(answer, (tuple, list)) else brief(answer)
    raise InterfaceError(f"step returned {given}; {expected}")


def reset_answer(answer: Any, expected: str = "(observation, info)") -> tuple[Any, Any]:
    """The two values of a reset; TypeError if the answer is not a tuple of two."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(f"expected {expected}, got {type(answer).__name__}")
    return answer


def as_flag(flag: Any, name: str) -> bool:
    """Whether an episode has ended: a bool, the integer 0 or 1, or an array with one of these."""
    array = np.asarray(flag)
    if array.size != 1 or not _are_flags(array):
        raise EnvError(f"{name} is {brief(flag)}; expected a bool")
    return bool(array.item())


def as_flags(flags: Any, name: str, num_envs: int) -> Array:
    """`as_flag` for a vector environment, bool ``(N,)``; always a copy."""
    array = np.asarray(flags)
    if array.shape != (num_envs,) or not _are_flags(array):
        raise EnvError(f"{name} is {brief(flags)}; expected {num_envs} bools, one per environment")
    return np.array(array, bool)


def as_info(info: Any, key: str) -> Mapping[str, Any]:
    """The info of a reset or step, a dict from which `key` is taken."""
    if not isinstance(info, Mapping):
        raise InterfaceError(f"info is {brief(info)}; expected a dict with {key!r}, which env.info_keys declares")
    return info


def brief(value: Any) -> str:
    """A value as one line of text, for messages."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]}..."


def _are_flags(array: Array) -> bool:
    kind = array.dtype.kind
    return kind == "b" or (kind in "iu" and bool(((array == 0) | (array == 1)).all()))
