"""The differences between two descriptions of spaces, in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_DECISIVE = ("kind", "shape")
"""If one of these differs, other differences follow from it, such as bounds of another length, and are not named."""
_ABSENT = "missing"
_MOST_TEXT = 40


def differences(name: str, there: Any, here: Any) -> list[str]:
    """Each difference as ``'name.shape is [4] there, [3] here'``.

    Args:
      name: name of the compared values in the result.
      there, here: plain values, or descriptions of spaces (see `envs.describe_space`), of which only the entries that
        differ are named.
    """
    return [f"{path} is {_short(old)} there, {_short(new)} here" for path, old, new in _walk(name, there, here)]


def _walk(path: str, there: Any, here: Any) -> Iterator[tuple[str, Any, Any]]:
    if there == here:
        return
    if not (isinstance(there, Mapping) and isinstance(here, Mapping)):
        yield path, there, here
        return
    for key in _DECISIVE:
        if there.get(key) != here.get(key):
            yield f"{path}.{key}", there.get(key, _ABSENT), here.get(key, _ABSENT)
            return
    for key in dict.fromkeys([*there, *here]):
        old, new = (_children(side.get(key, _ABSENT)) for side in (there, here))
        yield from _walk(path if key == "spaces" else f"{path}.{key}", old, new)


def _children(value: Any) -> Any:
    """The spaces of a tuple by their number, like those of a dict by name; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return {str(i): item for i, item in enumerate(value)}
    return value


def _short(value: Any) -> str:
    text = value if value is _ABSENT else repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
