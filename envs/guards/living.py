"""Which environments exist in this process: of some there can only be one."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

_living: dict[int, str] = {}


def born(env: Any, name: str) -> None:
    """Counts an environment until it is closed (`gone`), or forgotten."""
    _living[id(env)] = name
    with contextlib.suppress(TypeError):  # what cannot be referred to weakly counts until it is closed
        weakref.finalize(env, _living.pop, id(env), None).atexit = False


def gone(env: Any) -> None:
    """Counts an environment no longer."""
    _living.pop(id(env), None)


def count(name: str) -> int:
    """How many of this name exist."""
    return list(_living.values()).count(name)
