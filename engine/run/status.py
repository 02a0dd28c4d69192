"""``status.json``: the progress of a run and the activities of its workers, for people and other programs."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from minding.engine.chain.context import UNITS, Context
from minding.engine.chain.lanes import WorkerStatus
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.files import read_text, replace
from minding.engine.process.alive import start_ticks
from minding.engine.run.lock import lost

STATES = ("running", "ended", "failed")
_EVERY = 1.0
"""Seconds between two writes, the same as for rows of metrics.

A write takes 0.2 to 0.3 ms on a local disk, and on Ray a call to every actor.
"""
_SHARE = 0.02
"""Largest share of a run that writes may take: with many actors they become rarer."""
_MAX = 1 << 20
_MOST = {"written": 10**11, "pid": 1 << 31}
"""Numbers that are not reached, by field: a time in the year 5138, and an id of a process."""


@dataclasses.dataclass(frozen=True)
class RunStatus:
    """The status of a run at one moment.

    Attributes:
      written: time of the write, in seconds since 1970.
    """

    state: str
    reason: str
    written: float
    node: str
    pid: int
    born: str | None
    unit: str
    limit: int
    iteration: int
    env_step: int | None
    train_iter: int | None
    workers: tuple[WorkerStatus, ...] = ()

    @property
    def clock(self) -> int:
        """The value of the run's clock."""
        counters = {"env_step": self.env_step, "train_iter": self.train_iter, "total_step": self.iteration}
        return counters[self.unit] or 0


class StatusFile:
    """Writes the status of this process's run, each time atomically; logs a failing disk once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = float("-inf")
        self._warned = False
        self._born = start_ticks(os.getpid())

    @property
    def due(self) -> bool:
        """Whether the last write was a second ago, or longer if it took long."""
        return time.monotonic() >= self._next

    def write(
        self, ctx: Context, limit: int, workers: Iterable[WorkerStatus], state: str = "running", reason: str = ""
    ) -> None:
        begun = time.monotonic()
        self._next = begun + _EVERY
        # If the folder was lost, one with its name may belong to another run.
        if lost(self._path.parent):
            return
        status = RunStatus(
            state=state,
            reason=reason,
            written=round(time.time(), 3),
            node=platform.node(),
            pid=os.getpid(),
            born=self._born,
            unit=ctx.unit,
            limit=limit,
            iteration=ctx.total_step,
            env_step=ctx.optional("env_step", int),
            train_iter=ctx.optional("train_iter", int),
            workers=tuple(workers),
        )
        try:
            replace(self._path, json.dumps(dataclasses.asdict(status), indent=2) + "\n", durable=False)
        except OSError as error:
            if not self._warned:
                console_logger().warning("%s was not written: %s", self._path, error.strerror)
            self._warned = True
        now = time.monotonic()
        self._next = max(self._next, now + (now - begun) / _SHARE)


def read_status(path: Path) -> RunStatus:
    """Reads a file of `StatusFile`."""
    try:
        return _status_of(json.loads(read_text(path, _MAX)))
    except FileNotFoundError:
        raise ConfigError(
            f"{str(path.parent)!r} has no {path.name}: it has not begun, or a chain in a script made it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not the status of a run: {error}") from None


def _status_of(tree: Any) -> RunStatus:
    """Reads a parsed file; ValueError for anything that `StatusFile` does not write."""
    tree = _typed(RunStatus, tree, "")
    workers = tree.pop("workers")
    status = RunStatus(
        **tree, workers=tuple(WorkerStatus(**_typed(WorkerStatus, each, "workers.")) for each in workers)
    )
    for name, value, known in (("state", status.state, STATES), ("unit", status.unit, tuple(UNITS))):
        if value not in known:
            raise ValueError(f"{name}={value[:80]!r}: expected one of {', '.join(known)}")
    return status


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (float, int), "str | None": (str, type(None)),
    "int | None": (int, type(None)), "tuple[WorkerStatus, ...]": (list,),
}  # fmt: skip


def _typed(kind: type, tree: Any, prefix: str) -> dict[str, Any]:
    """Returns the tree if it has exactly the fields of a class, each with its type; else ValueError."""
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}
    if not isinstance(tree, dict) or tree.keys() != fields.keys():
        raise ValueError(f"expected {prefix or 'an object with '}{', '.join(fields)}")
    for name, value in tree.items():
        if type(value) not in _TYPES[fields[name]]:
            raise ValueError(f"{prefix}{name}={value!r:.80}: expected {fields[name]}")
        most = _MOST.get(name, 1 << 62)
        # NaN is not in the range either.
        if isinstance(value, (int, float)) and not 0 <= value < most:
            raise ValueError(f"{prefix}{name}={value!r:.80}: expected a number from 0 to {most:,}")
    return dict(tree)
