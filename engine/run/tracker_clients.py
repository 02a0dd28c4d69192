"""The clients of the experiment trackers. A tracker's package is imported when a run starts to use it."""

import contextlib
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minding.engine.files import read_bounded
from minding.engine.process.packages import import_installed
from minding.engine.run.metrics import CLOCKS
from minding.engine.run.trackers import Client, Names, Row, TrackedRun, flat

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
