"""Tells whether an exception comes from the user's code, or from minding and libraries."""

import contextlib
import os
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from minding.engine.errors import CodeError, MindingError, add_note

_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_MARK = "__in_code_of_user__"

Place: TypeAlias = "tuple[str, int, str]"
"""File, line and function of a frame."""


def is_of_libraries(file: str) -> bool:
    """Whether a file belongs to minding, to Python, or to an installed package."""
    return file.startswith((_OWN, *_LIBRARIES, "<frozen"))


def places_of(error: BaseException) -> list[Place]:
    """The frames that an exception came through, outermost first."""
    walked = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in walked]


def user_location(frames: Iterable[Place]) -> str:
    """`` (file:line in function)`` of the innermost frame in the user's code. Only frames below minding's last call
    count: if the environment belongs to a library, the script that trains in it is not to blame. Returns an empty
    string if minding called no user code."""
    places = list(frames)
    own = [number for number, place in enumerate(places) if place[0].startswith(_OWN)]
    inner = [place for place in places[own[-1] + 1 if own else 0 :] if not place[0].startswith("<frozen")]
    users = [place for place in inner or places if not is_of_libraries(place[0])]
    if not users and not inner:
        return ""
    file, line, function = (users or inner)[-1]
    return f" ({file}:{line} in {function})"


@contextlib.contextmanager
def in_code_of(thing: Any, doing: str) -> Iterator[None]:
    """Marks an exception of the block as the user's, if `thing`, which the block calls, is not minding's. The frames
    alone do not always show this: wrong arguments raise before the first line of a method."""
    try:
        yield
    except Exception as error:
        kind = thing if isinstance(thing, type) else type(thing)
        if kind.__module__.partition(".")[0] != "minding":
            add_note(error, f"{doing}{user_location(places_of(error))}")
            vars(error)[_MARK] = True
        raise


@contextlib.contextmanager
def building(what: str) -> Iterator[None]:
    """Turns an exception from the code that a setting names into one line."""
    try:
        yield
    except MindingError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        place = user_location(places_of(error)[1:])
        raise CodeError(f"{what} failed: {type(error).__name__}: {text}{place}") from error


def is_users(error: BaseException, inside: int = 0) -> bool:
    """Whether an exception was raised in the user's code."""
    return _MARK in vars(error) or any(not is_of_libraries(file) for file, _, _ in places_of(error)[inside:])
