"""SwanLab (extra `swanlab`). Its own variables choose account and mode: `SWANLAB_MODE=offline`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minding.engine.process.installed import import_installed
from minding.engine.run.trackers import Row, TrackedRun
from minding.engine.run.trackers.offline import records


class Client:
    """Sends rows to an experiment of SwanLab."""

    _run: Any = None

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        swanlab: Any = import_installed("swanlab")

        run.make_folder()
        held = 0 if id is None else _held_offline(run.folder, id)
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


def _held_offline(folder: Path, id: str) -> int:
    """Counts rows: each consists of several records with one time, and the last is whole only if a record follows."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    held = 0
    for file in folder.glob(f"swanlab/run-*/run-{id}.swanlab"):
        found = [Record.FromString(record) for record in records(file)]
        times = [str(each.scalar.timestamp) for each in found if each.HasField("scalar")]
        torn = bool(times) and found[-1].HasField("scalar")
        held += len(set(times)) - torn
    return held
