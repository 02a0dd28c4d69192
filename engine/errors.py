"""Exceptions, one for each kind of user mistake or fault.

Every message says what was expected, what was given, where, and the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

_MOST_TEXT = 2000


class MindingError(Exception):
    """Base of every error raised on purpose by minding; however long a value in its message is, it stays readable."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ... ({len(text):,} characters)"


class ConfigError(MindingError, ValueError):
    """A configuration key is unknown, of the wrong type, or out of range."""


class CodeError(ConfigError):
    """A setting names code of the user's that cannot be loaded, or that fails when it is used to build a run."""


class ChainError(MindingError):
    """The middleware chain does not fit together, or `task` is used out of order."""


class MiddlewareError(MindingError):
    """A middleware broke the protocol (a second `yield`, not callable)."""


class FieldError(MiddlewareError):
    """A field of the context holds something else than the middleware that reads it expects.

    Attributes:
      field: its name.

    Args:
      field: its name.
      reader: the middleware.
      expected: what should be there.
      value: what is.
      key: where in the field, if it is a dict.
    """

    def __init__(self, field: str, reader: str, expected: str, value: object, key: str | None = None) -> None:
        found = "None" if value is None else f"a {type(value).__name__}"
        where = f"ctx.{field}" if key is None else f"ctx.{field}[{key!r}]"
        super().__init__(f"{reader} expects {where} to be {expected}, and found {found}")
        self.field = field
        self._args = (field, reader, expected, value, key)

    def __reduce__(self) -> tuple[type[FieldError], tuple[str, str, str, object, str | None]]:
        # From a worker.
        return FieldError, self._args


class ShapeError(MindingError, ValueError):
    """An array has the wrong shape or dtype."""


class EnvError(MindingError):
    """An environment raised, hung, or returned NaN or a wrong shape; names environment, step and value."""


class GameError(MindingError, ValueError):
    """A board game's rules were broken: an illegal action, or a running game that has no legal one."""


class LaneError(MindingError):
    """A lane of an asynchronous run cannot be started, died again and again, or broke the protocol."""


class LimitError(MindingError):
    """The limiter of a replay table does not allow what was asked of it now."""


class SpaceError(MindingError, ValueError):
    """An observation or action space that the algorithm or the encoder cannot handle."""


class RunInUseError(MindingError):
    """Another process writes this run; names that process."""


class CheckpointError(MindingError):
    """A checkpoint is damaged or belongs to another schema, algorithm, network or environment."""


class UnsavableError(CheckpointError):
    """A state holds something that a checkpoint cannot.

    Attributes:
      path: the keys in the state that lead to it.
      problem: what it is, such as ``a socket cannot be saved``.
    """

    def __init__(self, path: tuple[str, ...], problem: str) -> None:
        super().__init__(f"state{''.join(f'/{key}' for key in path)}: {problem}")
        self.path, self.problem = path, problem


class DamagedCheckpointError(CheckpointError):
    """A checkpoint cannot be read, or its contents do not fit together; an older one takes its place."""


class NoCheckpointError(CheckpointError):
    """None of the checkpoints that were asked for can be loaded: bad input, also where training finds it."""


class DataError(MindingError, ValueError):
    """Recorded data are missing, damaged, or of another environment."""


class DamagedDataError(DataError):
    """Recorded data are there, and cannot be read or do not fit together: a fault of theirs, not of what was asked."""


class TrustError(MindingError):
    """A run folder names code that is not the user's own and was not declared trusted."""


class ExportError(MindingError):
    """An exported file cannot be written or read, or does not compute what its policy computes."""


class SetupError(MindingError):
    """The process cannot run MindSpore; the message states the fix."""


class NonFiniteError(MindingError, ArithmeticError):
    """NaN or infinity where a number is needed (loss, reward, observation, priority).

    Attributes:
      batch: arrays by name, the rows that were learned from when it happened; empty elsewhere.
      metrics: what that update reported; empty elsewhere.
    """

    def __init__(
        self, message: str, batch: Mapping[str, Any] | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(message)
        self.batch = dict(batch or {})
        self.metrics = dict(metrics or {})


class MissingExtraError(MindingError, ImportError):
    """An optional dependency is not installed; names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'minding[{extra}]'")


_NEAR = 0.6
"""Ratio of `difflib` from which on two names are near."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ``"; did you mean 'x'?"`` for the closest known name, whatever its case, or an empty string."""
    lowered: dict[str, str] = {}
    for each in known:
        lowered.setdefault(each.lower(), each)
    match = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=_NEAR)
    return f"; did you mean {lowered[match[0]]!r}?" if match else ""
