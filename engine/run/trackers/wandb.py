"""Weights & Biases (extra `wandb`). Its own variables choose project, account and mode: `WANDB_MODE=offline`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minding.engine.process.installed import import_installed
from minding.engine.run.metrics import CLOCKS
from minding.engine.run.trackers import Row, TrackedRun
from minding.engine.run.trackers.offline import records


class Client:
    """Sends rows to a run of Weights & Biases, with the row number as its step, which it accepts only once."""

    _run: Any = None

    def start(self, run: TrackedRun, id: str | None) -> tuple[str, int | None]:
        wandb: Any = import_installed("wandb")

        run.make_folder()
        held = 0 if id is None else _held_offline(run.folder, id)
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


def _held_offline(folder: Path, id: str) -> int:
    from wandb.proto.wandb_internal_pb2 import Record

    files = folder.glob(f"wandb/offline-run-*/run-{id}.wandb")
    return sum(Record.FromString(record).HasField("history") for file in files for record in records(file))
