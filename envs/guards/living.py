"""Which environments exist in this process: of some there can only be one, and no object is two environments."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any

_living: dict[int, str] = {}
_known: dict[int, weakref.ref[Any]] = {}
"""The environments that were ever made and not forgotten, without their wrappers, by their `id`."""


def born(env: Any, name: str) -> None:
    """Counts an environment until it is closed (`gone`), or forgotten."""
    _living[id(env)] = name
    with contextlib.suppress(TypeError):  # what cannot be referred to weakly counts until it is closed
        weakref.finalize(env, _living.pop, id(env), None).atexit = False


def gone(env: Any) -> None:
    """Counts an environment no longer."""
    _living.pop(id(env), None)


def count(name: str) -> int:
    """The number of living objects of this name."""
    return list(_living.values()).count(name)


def is_new(env: Any) -> bool:
    """Whether nothing was made before that is this very object, wrapped or not; closing it does not make it new.

    What cannot be referred to weakly is always new: its `id` may be that of a forgotten one.
    """
    core = _unwrapped(env)
    known = _known.get(id(core))
    if known is not None and known() is core:
        return False
    with contextlib.suppress(TypeError):
        _known[id(core)] = weakref.ref(core, functools.partial(_forget, id(core)))
    return True


def _forget(key: int, reference: weakref.ref[Any]) -> None:
    # By then another object may have its `id`.
    if _known.get(key) is reference:
        del _known[key]


def _unwrapped(env: Any) -> Any:
    try:
        core = env.unwrapped
    except Exception:  # A property of the user's own; most environments that are no Gymnasium environments have none.
        return env
    return env if core is None else core
