"""Counts the environments in this process: some may exist only once, and no object may serve as two environments."""

import contextlib
import functools
import weakref
from typing import Any

_open: dict[int, str] = {}
_known: dict[int, weakref.ref[Any]] = {}
"""References to all environments that were made and still exist, without their wrappers, by their `id`."""


def add(env: Any, name: str) -> None:
    """Counts an environment until it is closed (`remove`), or garbage-collected."""
    _open[id(env)] = name
    with contextlib.suppress(TypeError):  # without support for weak references, it counts until it is closed
        weakref.finalize(env, _open.pop, id(env), None).atexit = False


def remove(env: Any) -> None:
    _open.pop(id(env), None)


def count(name: str) -> int:
    """The number of open environments of this name."""
    return list(_open.values()).count(name)


def is_new(env: Any) -> bool:
    """Whether this very object, wrapped or not, was never passed before; closing an environment does not make it new.
    An object without support for weak references always counts as new: its `id` may be that of a former object."""
    core = _unwrapped(env)
    known = _known.get(id(core))
    if known is not None and known() is core:
        return False
    with contextlib.suppress(TypeError):
        _known[id(core)] = weakref.ref(core, functools.partial(_forget, id(core)))
    return True


def _forget(key: int, reference: weakref.ref[Any]) -> None:
    # Another object may have the same `id` by now.
    if _known.get(key) is reference:
        del _known[key]


def _unwrapped(env: Any) -> Any:
    try:
        core = env.unwrapped
    except Exception:  # a user's own property may raise anything, and other interfaces mostly lack the attribute
        return env
    return env if core is None else core
