"""Exceptions, one for each kind of user mistake or fault.

Every message says what was expected, what was given, where, and the fix.
"""

from __future__ import annotations

import difflib
import operator
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

_MOST_TEXT = 2000


def printable(text: object, *, lines: bool = False) -> str:
    """Foreign text, as of files and folder names, for a terminal: what would control it or hide is shown as an escape.
    These are control characters, invisible marks such as those that reverse text, and halves of characters."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(_shown(each) if not (lines and each == "\n") else each for each in text)


def _shown(character: str) -> str:
    # What is not printable includes all spaces but the usual one.
    harmless = character.isprintable() or unicodedata.category(character) == "Zs"
    return character if harmless else character.encode("unicode_escape").decode("ascii")


class MindingError(Exception):
    """Base of every error that minding raises on purpose; messages are `printable`, and very long ones shortened."""

    def __str__(self) -> str:
        text = printable(super().__str__(), lines=True)
        return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ... ({len(text):,} characters)"


class ConfigError(MindingError, ValueError):
    """A configuration key is unknown, of the wrong type, or out of range."""


class CodeError(ConfigError):
    """A setting names user code that cannot be loaded, or that fails when a run is built with it."""


class UnfilmableError(ConfigError):
    """The environment cannot render images, at all or on this machine."""


class ChainError(MindingError):
    """The middleware of a chain do not fit together, or methods of `task` are called in the wrong order."""


class MiddlewareError(MindingError):
    """A middleware violates the protocol, for example because it yields twice or cannot be called."""


class FieldError(MiddlewareError):
    """A field of the context does not hold the value that a middleware expects."""

    def __init__(self, field: str, reader: str, expected: str, value: object, key: str | None = None) -> None:
        found = "None" if value is None else f"a {type(value).__name__}"
        where = f"ctx.{field}" if key is None else f"ctx.{field}[{key!r}]"
        super().__init__(f"{reader} expects {where} to be {expected}, but found {found}")
        self.field = field
        self._args = (field, reader, expected, value, key)

    def __reduce__(self) -> tuple[type[FieldError], tuple[str, str, str, object, str | None]]:
        # Raised again from a worker.
        return FieldError, self._args


class ShapeError(MindingError, ValueError):
    """An array has the wrong shape or dtype."""


class EnvError(MindingError):
    """An environment raised an exception, hung, or returned NaN or a wrong shape; names environment, step and value."""


class GameError(MindingError, ValueError):
    """The rules of a board game were violated: an illegal action, or a running game without legal actions."""


class LaneError(MindingError):
    """A lane of an asynchronous run cannot be started, died repeatedly, or violated the protocol."""


class LearnerError(MindingError):
    """One of several learners has ended or failed (``lanes.learners``)."""


class LimitError(MindingError):
    """The rate limiter of a replay table does not allow this operation now."""


class SpaceError(MindingError, ValueError):
    """The algorithm or the encoder cannot handle an observation or action space."""


class RunInUseError(MindingError):
    """Another process is writing this run; names that process."""


class CheckpointError(MindingError):
    """A checkpoint is damaged, or has another schema, algorithm, network or environment."""


class UnsavableError(CheckpointError):
    """A state contains a value that a checkpoint cannot store."""

    def __init__(self, path: tuple[str, ...], problem: str) -> None:
        super().__init__(f"state{''.join(f'/{key}' for key in path)}: {problem}")
        self.path, self.problem = path, problem


class DamagedCheckpointError(CheckpointError):
    """A checkpoint cannot be read, or its contents are inconsistent; an older checkpoint is used instead."""


class NoCheckpointError(CheckpointError):
    """None of the requested checkpoints can be loaded. This counts as bad input, even if it is found during
    training."""


class DataError(MindingError, ValueError):
    """Recorded data are missing, damaged, or belong to another environment."""


class DamagedDataError(DataError):
    """Recorded data exist but cannot be read, or are inconsistent: the data are at fault, not the request."""


class TrustError(MindingError):
    """A run folder or .yaml file names code, and was not declared trusted."""


class ExportError(MindingError):
    """An exported file cannot be written or read, or its outputs differ from those of the policy."""


class SetupError(MindingError):
    """A package, a setting or a device does not fit; the message says how to fix it."""


class NonFiniteError(MindingError, ArithmeticError):
    """A loss, reward, observation or priority is NaN or infinite.

    Attributes:
      batch: arrays by name, the rows of the update in which it happened; empty if it was not an update.
      metrics: the metrics of that update; empty if it was not an update.
    """

    def __init__(
        self, message: str, batch: Mapping[str, Any] | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(message)
        self.batch = dict(batch or {})
        self.metrics = dict(metrics or {})


def installing(extra: str) -> str:
    """The command that installs the packages of an extra."""
    return f"pip install -e '.[{extra}]' in your clone of minding"


class MissingExtraError(MindingError, ImportError):
    """An optional dependency is not installed; names the extra that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: {installing(extra)}")


MOST_NAMED = 3
"""Number of names that a message lists in full."""


def few(names: Sequence[str], most: int = MOST_NAMED, between: str = ", ") -> str:
    """The first names and the number of the others, as text."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


_NEAR = 0.6
"""Ratio of `difflib` from which on two names are near."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ``"; did you mean 'x'?"`` for the closest known name, whatever its case, or else for the first one that
    begins with it, or an empty string."""
    lowered: dict[str, str] = {}
    for each in known:
        lowered.setdefault(each.lower(), each)
    match = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=_NEAR)
    match = match or [each for each in lowered if name and each.startswith(name.lower())]
    return f"; did you mean {lowered[match[0]]!r}?" if match else ""


def whole_number(value: Any, expected: str) -> int:
    """An integer of 0 or more; ConfigError for anything else, and for a bool."""
    try:
        found = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = -1
    if found < 0:
        raise ConfigError(f"{expected}, got {value!r}")
    return found


# Notes on exceptions, shown below the message: they say where in the chain an error happened.


def add_note(error: BaseException, note: str) -> None:
    """Adds a line that Python shows below the traceback. Python 3.10 does not show notes: there they are only stored,
    under the same name ``__notes__``."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
        return
    noted = cast(Any, error)
    noted.__notes__ = [*notes_of(error), note]


def notes_of(error: BaseException) -> list[str]:
    """Returns the notes of an exception, oldest first."""
    return list(getattr(error, "__notes__", []))
