"""Experiment trackers: their common part, and a client for each. A tracker's package is imported when a run uses it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import re
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from minding.engine.config.options import plain
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.files import Folder, read_bounded, read_text, refuse_links
from minding.engine.process.packages import import_installed
from minding.engine.run.lock import lost
from minding.engine.run.metrics import CLOCKS, clock_of, read_table
from minding.engine.run.run_dir import SEEDS_SETTINGS, RunDir

_ODD = re.compile(r"[^\w./ -]")
_LONGEST_NAME = 240
_MOST_WAITING = 10_000
_MAX_KEPT = 1 << 16
_PATIENCE = 600.0
"""Seconds after a failure until a tracker is tried again: a call that fails may have blocked training for minutes."""


class Names:
    """The names under which trackers get metrics and settings: ones that all of them accept.

    MLflow has the narrowest rule: letters, digits and ``_ - . /`` and spaces, in the form of a path. Other characters
    become ``_``, and of two names that become one, the later gets a number.
    """

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def of(self, name: str) -> str:
        known = self._given.get(name)
        if known is None:
            parts = [part if part.strip(" .") else "_" for part in _ODD.sub("_", name).split("/") if part]
            first = known = "/".join(parts).strip(" .")[:_LONGEST_NAME].rstrip("/ .") or "_"
            number = 2
            while known in self._given.values():
                known, number = f"{first}_{number}", number + 1
            self._given[name] = known
        return known


class Row(NamedTuple):
    """A row of metrics: its number in the run, from 0, the value of the clock, and its metrics, see `Names`."""

    number: int
    step: int
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class TrackedRun:
    """The description of a run for a tracker."""

    name: str
    group: str | None
    folder: Path
    settings: dict[str, Any]

    @classmethod
    def of(cls, run_dir: RunDir, settings: Mapping[str, Any]) -> TrackedRun:
        """Returns the description of the run in a run folder."""
        path = run_dir.path.absolute()
        group = path.parent.name if (path.parent / SEEDS_SETTINGS).is_file() else None
        name = path.name if group is None else f"{group}/{path.name}"
        return cls(name, group, run_dir.trackers.absolute(), plain(settings))

    def make_folder(self) -> None:
        """Creates the folder if it is missing, before a tracker's own code writes there."""
        with Folder(self.folder, make=True):
            refuse_links(self.folder)


class Client(Protocol):
    """The interface of a class of `engine.run.trackers`. Any exception counts as a failure of the tracker."""

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        """Begins a run, or continues the run with this id."""

    def log(self, rows: Sequence[Row]) -> None:
        """Sends rows."""

    def finish(self) -> None:
        """Waits until everything is sent, and ends the run."""


class Tracker:
    """A `MetricsLogger` that sends each row to a tracker once, even if a run is killed and resumed.

    A tracker cannot delete rows. So the run folder stores the number of rows that were sent, with the id of the
    tracker's run. A resumed run asks the tracker for its number of rows, skips these, and takes the missing ones from
    metrics.csv, which has been cut back by then. If a tracker cannot tell, the stored number counts; it is written
    before rows are sent, so that a kill in between loses these rows. After a failure there is one warning; rows wait in
    memory and are sent some minutes later, at the end, or by a resumed run.

    Args:
      clock: returns monotonic seconds.
    """

    def __init__(self, name: str, client: Client, run_dir: RunDir, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._client, self._run_dir, self._time = name, client, run_dir, clock
        self._settings: Mapping[str, Any] = {}
        self._id: str | None = None
        self._started = False
        # Number of rows so far, number of rows sent to the tracker, and the waiting rows.
        self._rows = self._given = 0
        self._waiting: collections.deque[Row] = collections.deque(maxlen=_MOST_WAITING)
        self._names = Names()
        self._failed_at: float | None = None
        self._warned = False

    def open(self, settings: Mapping[str, Any], step: int) -> None:
        """Stores the settings; the tracker's run begins with the first row that is sent."""
        self._settings = settings

    def write(self, row: Mapping[str, float], step: int) -> None:
        self._waiting.append(Row(self._rows, step, {self._names.of(name): value for name, value in row.items()}))
        self._rows += 1

    def flush(self) -> None:
        """Sends the rows that wait, unless the tracker failed a short time ago."""
        if self._waiting and (self._failed_at is None or self._time() - self._failed_at >= _PATIENCE):
            self._send()

    def purge_after(self, step: int, rows: int) -> None:
        """Continues the tracker's run, which may contain other rows by now."""
        self._waiting.clear()
        self._id, self._given = self._kept()
        self._rows = rows
        with contextlib.suppress(ConfigError):
            # In the order in which the earlier process had the names.
            for name in read_table(self._run_dir.metrics, 0).columns:
                self._names.of(name)

    def close(self) -> None:
        """Sends waiting rows, and ends the tracker's run; a later write continues it."""
        if self._waiting:
            self._send()
        if self._started:
            self._started = False
            with self._warning_instead_of_error():
                self._client.finish()

    def _send(self) -> None:
        with self._warning_instead_of_error():
            if not self._started:
                self._start()
            rows = [row for row in self._waiting if row.number >= self._given]
            if rows:
                before, self._given = self._given, rows[-1].number + 1
                self._keep()
                try:
                    self._client.log(rows)
                except Exception:
                    self._given = before
                    self._keep()
                    raise
            self._waiting.clear()
            self._failed_at = None

    def _start(self) -> None:
        self._id, held = self._client.start(TrackedRun.of(self._run_dir, self._settings), self._id)
        self._started = True
        if held is not None:
            self._given = held
        missing = _rows_of(self._run_dir.metrics, self._given, self._waiting[0].number, self._names)
        self._waiting.extendleft(reversed(missing))

    @contextlib.contextmanager
    def _warning_instead_of_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._warned:
                text = " ".join(str(error).split())[:300]
                console_logger().warning(
                    "%s failed (%s: %s): training continues without it; waiting rows are sent again in %d minutes, at "
                    "the end, or when the run is resumed", self._name, type(error).__name__, text, _PATIENCE // 60,
                )  # fmt: skip
            self._failed_at, self._warned = self._time(), True

    @property
    def _file(self) -> Path:
        return self._run_dir.trackers / f"{self._name}.json"

    def _kept(self) -> tuple[str | None, int]:
        """The id of the tracker's run, and the number of rows sent to it."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(read_text(self._file, _MAX_KEPT))
            return str(kept["id"]), int(kept["rows"])
        return None, 0

    def _keep(self) -> None:
        if lost(self._run_dir.path):
            return
        # A failing disk is reported with metrics.csv.
        with contextlib.suppress(OSError), Folder(self._run_dir.trackers, make=True) as folder:
            folder.replace(self._file.name, json.dumps({"id": self._id, "rows": self._given}).encode(), durable=False)


def _rows_of(path: Path, begin: int, end: int, names: Names) -> list[Row]:
    """The given rows of metrics.csv; empty if the file is not whole."""
    if begin >= end:
        return []
    try:
        table = read_table(path, end)
    except ConfigError:
        return []
    clock = clock_of(table.columns)
    if len(table.rows) < end or clock is None:
        return []
    columns = [names.of(name) for name in table.columns]
    found = [{name: float(cell) for name, cell in zip(columns, cells) if cell} for cells in table.rows[begin:]]
    return [Row(begin + place, int(values[clock]), values) for place, values in enumerate(found)]


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | bool | str]]:
    """The settings by their full keys, in types that every tracker accepts; without the environment's description."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            if prefix + key != "env.spec":
                yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, (int, float, str)) else str(value)


_MOST_METRICS = 1000
"""Maximum number of metrics in one request to MLflow."""
_MOST_PARAMS = 100
_MOST_TEXT = 500
_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
"""Checksum, length, kind of a piece of a record: 1 whole, 2 first, 3 middle, 4 last."""
_MOST_BYTES = 1 << 31
_HEAD = 7
"""Bytes at the beginning of a file that name its format."""


class WandbClient:
    """Sends rows to a run of Weights & Biases (extra `wandb`), with the row number as its unique step.

    Its own variables choose project, account and mode: `WANDB_MODE=offline`.
    """

    _run: Any = None

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        wandb: Any = import_installed("wandb")

        run.make_folder()
        held = 0 if id is None else _held_by_wandb(run.folder, id)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "minding"),
            name=run.name,
            group=run.group,
            id=id,
            resume="allow",
            dir=str(run.folder),
            config=run.settings,
            # The progress display has the terminal.
            settings=wandb.Settings(console="off", silent=True),
        )
        clock = next((name for name in CLOCKS if run.settings["run"].get(f"max_{name}") is not None), CLOCKS[0])
        self._run.define_metric("*", step_metric=clock)
        return str(self._run.id), held if self._run.offline else int(self._run.step)

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._run.log(dict(row.values), step=row.number)

    def finish(self) -> None:
        self._run.finish()


def _held_by_wandb(folder: Path, id: str) -> int:
    from wandb.proto.wandb_internal_pb2 import Record

    files = folder.glob(f"wandb/offline-run-*/run-{id}.wandb")
    return sum(Record.FromString(record).HasField("history") for file in files for record in records(file))


class SwanLabClient:
    """Sends rows to an experiment of SwanLab (extra `swanlab`).

    Its own variables choose account and mode: `SWANLAB_MODE=offline`.
    """

    _run: Any = None

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        swanlab: Any = import_installed("swanlab")

        run.make_folder()
        held = 0 if id is None else _held_by_swanlab(run.folder, id)
        with _handlers_kept():
            self._run = swanlab.init(
                project=os.environ.get("SWANLAB_PROJ_NAME", "minding"),
                name=run.name,
                group=run.group,
                id=id,
                resume="allow",
                log_dir=str(run.folder / "swanlab"),
                config=run.settings,
            )
        return str(self._run.id), None if self._run.mode == "online" else held

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._run.log(dict(row.values), step=row.step)

    def finish(self) -> None:
        with _handlers_kept():
            self._run.finish()


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restores signal handlers, since SwanLab's handler of Ctrl-C would end the run without a checkpoint."""
    interrupt, hook = signal.getsignal(signal.SIGINT), sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
        if signal.getsignal(signal.SIGINT) is not interrupt:
            signal.signal(signal.SIGINT, interrupt)


def _held_by_swanlab(folder: Path, id: str) -> int:
    """Counts rows: each consists of several records with one time, and the last is whole only if a record follows."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    held = 0
    for file in folder.glob(f"swanlab/run-*/run-{id}.swanlab"):
        found = [Record.FromString(record) for record in records(file)]
        times = [str(each.scalar.timestamp) for each in found if each.HasField("scalar")]
        torn = bool(times) and found[-1].HasField("scalar")
        held += len(set(times)) - torn
    return held


class MLflowClient:
    """Sends rows to a run of MLflow (extra `mlflow`) through its client, so that a run that the user has active is not
    affected.

    Its own variables choose server and experiment: `MLFLOW_TRACKING_URI=sqlite:///mlflow.db`.
    """

    _client: Any = None
    _id = ""

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        import_installed("mlflow")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        if id is not None:
            self._client.set_terminated(id, "RUNNING")
            self._id = id
            return id, None
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "minding")
        experiment = self._client.get_experiment_by_name(name)
        place = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._id = self._client.create_run(place, run_name=run.name, tags={"group": run.group or ""}).info.run_id
        names = Names()
        params = [Param(names.of(key), str(value)[:_MOST_TEXT]) for key, value in flat(run.settings)]
        for begin in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[begin : begin + _MOST_PARAMS])
        return self._id, 0

    def log(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, row.step) for row in rows for name, value in row.values.items()]
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[begin : begin + _MOST_METRICS])

    def finish(self) -> None:
        self._client.set_terminated(self._id)


def records(path: Path) -> Iterator[bytes]:
    """The whole records of a file in which W&B or SwanLab stores a run to be sent later: a LevelDB log, whose end
    may be torn by a kill."""
    data, at, record = read_bounded(path, _MOST_BYTES), _HEAD, b""
    while at + _HEADER.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        if kind not in (1, 2, 3, 4) or at + length > len(data):
            return
        record += data[at : at + length]
        at += length
        if kind in (1, 4):
            yield record
            record = b""


CLIENTS: Mapping[str, Callable[[], Client]] = {"wandb": WandbClient, "mlflow": MLflowClient, "swanlab": SwanLabClient}
