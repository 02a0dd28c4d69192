"""Several runs in one folder, each trained by its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from minding.engine.config.compiler import save_config
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError
from minding.engine.files import Folder
from minding.engine.process.commands import Command
from minding.engine.process.signals import SIGNALS
from minding.engine.run.lock import RunLock, lost
from minding.engine.run.run_dir import SEEDS_SETTINGS, RunDir

_MINDING = "minding.cli:main"
_INTERRUPTED = tuple(number.name for number in SIGNALS)


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs of one configuration that differ in some settings, in one folder.

    Attributes:
      folder: the folder with ``settings.yaml``, the run folders, and ``logs``.
      cfg: the compiled configuration that all runs share.
    """

    folder: Path
    cfg: Config

    def prepare(self) -> None:
        """Creates the folder, its logs and its settings, if they are missing.

        Raises:
          OSError: a file or folder cannot be written.
        """
        with Folder(self.logs, make=True):
            pass
        if not self.settings.exists():
            save_config(self.cfg, self.settings)

    def keep(self, lock: RunLock) -> bool:
        """Recreates the folder if it was removed or renamed since it was locked; returns whether it was.

        Raises:
          RunInUseError: another process trains in a folder with that name.
        """
        gone = lost(self.folder)
        if gone:
            lock.renew()
        # The runs report a disk that fails.
        with contextlib.suppress(OSError):
            self.prepare()
        return gone

    @property
    def settings(self) -> Path:
        """The compiled configuration that all runs are trained with."""
        return self.folder / SEEDS_SETTINGS

    @property
    def logs(self) -> Path:
        """Folder with the output of the processes, one file per run."""
        return self.folder / "logs"

    def run_of(self, name: str) -> RunDir | None:
        """The newest run folder with this name; None if there is none."""
        found = RunDir.earlier(Config(exp_name=name, run=dict(out_dir=str(self.folder))))
        return found[0] if found else None

    def finished_run(self, name: str) -> RunDir | None:
        """The folder of a run that has finished and was saved; None if there is no such run."""
        found = self.run_of(name)
        if found is None:
            return None
        try:
            figures = found.read_figures()
        except ConfigError:
            # The process that finishes the run writes its summary again.
            return None
        ended = figures.get("stop_reason") not in (None, *_INTERRUPTED) and not figures.get("unsaved")
        return found if ended else None

    def command_of(self, name: str, changed: Sequence[str]) -> Command:
        """The process that trains a run, from its newest checkpoint or from the start.

        Args:
          name: the name of the run's folder and experiment.
          changed: the settings that differ from `cfg`, as KEY=VALUE.
        """
        placed = (f"exp_name={name}", f"run.out_dir={json.dumps(str(self.folder))}")
        # The code that the settings name was already checked when the user's settings were compiled.
        args = ["train", str(self.settings), *changed, *placed, "--resume", "--trust"]
        return Command(_MINDING, args, self.logs / f"{name}.txt")
