"""Trackers of experiments: what their packages have in common here. Each has a module, imported when it is named."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from minding.engine.config.options import plain
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.run.lock import lost
from minding.engine.run.metrics import clock_of, read_table
from minding.engine.run.run_dir import SEEDS_SETTINGS, RunDir

_MOST_WAITING = 10_000
_PATIENCE = 600.0
"""Seconds after a failure until a tracker is tried again: a call that fails may have blocked training for minutes."""


class Row(NamedTuple):
    """A row of metrics: its place among all rows of the run, from 0, its step of the clock, and its values."""

    number: int
    step: int
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run.

    Attributes:
      name: as it is shown; that of a run over several seeds names them all.
      group: of the runs of all seeds.
      folder: for the tracker's own files.
      settings: the compiled configuration in plain types.
    """

    name: str
    group: str | None
    folder: Path
    settings: dict[str, Any]

    @classmethod
    def of(cls, run_dir: RunDir, settings: Mapping[str, Any]) -> TrackedRun:
        """The run of a run folder."""
        path = run_dir.path.absolute()
        group = path.parent.name if (path.parent / SEEDS_SETTINGS).is_file() else None
        name = path.name if group is None else f"{group}/{path.name}"
        return cls(name, group, run_dir.trackers.absolute(), plain(settings))


class Client(Protocol):
    """What the module of a tracker defines, as `Client()`. Any exception counts as a failure of the tracker."""

    def start(self, run: TrackedRun, id: str | None) -> str:
        """Begins a run, or goes on with the one of this id; returns the id."""

    def log(self, rows: Sequence[Row]) -> None:
        """Sends rows."""

    def finish(self) -> None:
        """Waits until everything is sent, and ends the run."""


class Tracker:
    """A `MetricsLogger` that hands rows to a tracker, each once, also where a run is killed and resumed.

    A tracker cannot take rows back. How many it was sent is therefore kept in the run folder, with the id of its run,
    and a resumed run leaves out as many; it sends what is missing from metrics.csv, which has been cut back by then.
    The number is written before rows are sent: a kill in between costs these rows. After a failure there is one
    warning, rows wait in memory, and are sent some minutes later, at the end, or by a run that is resumed.

    Args:
      name: of the tracker.
      client: talks to it.
      run_dir: the run's folder.
      clock: seconds, monotonic.
    """

    def __init__(self, name: str, client: Client, run_dir: RunDir, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._client, self._run_dir, self._time = name, client, run_dir, clock
        self._settings: Mapping[str, Any] = {}
        self._id: str | None = None
        self._started = False
        # Rows of the run so far, rows that were sent or wait, and those that wait.
        self._rows = self._taken = 0
        self._waiting: collections.deque[Row] = collections.deque(maxlen=_MOST_WAITING)
        self._failed_at: float | None = None
        self._warned = False

    def open(self, settings: Mapping[str, Any], step: int) -> None:
        """Keeps the settings; the run begins with the first row that is sent."""
        self._settings = settings

    def write(self, row: Mapping[str, float], step: int) -> None:
        """Takes a row, unless the tracker was sent it before the run was resumed."""
        if self._rows >= self._taken:
            self._waiting.append(Row(self._rows, step, row))
            self._taken = self._rows + 1
        self._rows += 1

    def flush(self) -> None:
        """Sends the rows that wait, unless the tracker has failed a short time ago."""
        if self._waiting and (self._failed_at is None or self._time() - self._failed_at >= _PATIENCE):
            self._send()

    def purge_after(self, step: int, rows: int) -> None:
        """Goes on with the tracker's run: leaves out rows that it has, and takes up those that it was never sent."""
        self._waiting.clear()
        self._id, sent = self._kept()
        self._rows, self._taken = rows, max(sent, rows)
        if sent < rows:
            self._waiting.extend(_rows_of(self._run_dir.metrics, sent, rows))

    def close(self) -> None:
        """Sends what waits, and ends the tracker's run; a later write goes on with it."""
        if self._waiting:
            self._send()
        if self._started:
            self._started = False
            with self._warning_instead_of_error():
                self._client.finish()

    def _send(self) -> None:
        rows = list(self._waiting)
        with self._warning_instead_of_error():
            if not self._started:
                self._id = self._client.start(TrackedRun.of(self._run_dir, self._settings), self._id)
                self._started = True
            self._keep(self._taken)
            try:
                self._client.log(rows)
            except Exception:
                self._keep(rows[0].number)
                raise
            self._waiting.clear()
            self._failed_at = None

    @contextlib.contextmanager
    def _warning_instead_of_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._warned:
                text = " ".join(str(error).split())[:300]
                console_logger().warning(
                    "%s failed (%s: %s): training goes on without it; rows that wait are sent again in %d minutes, at "
                    "the end, or when the run is resumed", self._name, type(error).__name__, text, _PATIENCE // 60,
                )  # fmt: skip
            self._failed_at, self._warned = self._time(), True

    @property
    def _file(self) -> Path:
        return self._run_dir.trackers / f"{self._name}.json"

    def _kept(self) -> tuple[str | None, int]:
        """The id of the tracker's run, and how many rows it was sent."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            return str(kept["id"]), int(kept["rows"])
        return None, 0

    def _keep(self, rows: int) -> None:
        if lost(self._run_dir.path):
            return
        fresh = self._file.with_name(f"{self._file.name}.new")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"id": self._id, "rows": rows}), encoding="utf-8")
        os.replace(fresh, self._file)


def _rows_of(path: Path, begin: int, end: int) -> list[Row]:
    """These rows of metrics.csv; none if it is not whole."""
    try:
        table = read_table(path, end)
    except ConfigError:
        return []
    clock = clock_of(table.columns)
    if len(table.rows) < end or clock is None:
        return []
    found = [{name: float(cell) for name, cell in zip(table.columns, cells) if cell} for cells in table.rows[begin:]]
    return [Row(begin + place, int(values[clock]), values) for place, values in enumerate(found)]
