"""Notes on exceptions, shown below the message: they say where in the chain an error happened."""

from __future__ import annotations

import sys
from typing import Any, cast


def add_note(error: BaseException, note: str) -> None:
    """Adds a line that Python shows below the traceback.

    Python 3.10 does not show notes: there they are only stored, under the same name ``__notes__``.
    """
    if sys.version_info >= (3, 11):
        error.add_note(note)
        return
    noted = cast(Any, error)
    noted.__notes__ = [*notes_of(error), note]


def notes_of(error: BaseException) -> list[str]:
    """Returns the notes of an exception, oldest first."""
    return list(getattr(error, "__notes__", []))
