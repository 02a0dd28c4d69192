"""One configuration with several seeds: a folder that holds a run folder for each, and how a seed is trained."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from easydict import EasyDict

from minding.engine.config.compiler import load_config, save_config
from minding.engine.errors import ConfigError
from minding.engine.process.commands import Command
from minding.engine.process.signals import SIGNALS
from minding.engine.run.curves import settings_of
from minding.engine.run.lock import RunLock, lost
from minding.engine.run.run_dir import SEEDS_SETTINGS, RunDir

_MINDING = "minding.cli:main"
_INTERRUPTED = tuple(number.name for number in SIGNALS)


@dataclasses.dataclass(frozen=True)
class SeedRuns:
    """The runs of one configuration that differ in their seed only, in one folder.

    Attributes:
      folder: holds ``settings.yaml``, a run folder ``seed_<K>`` for each seed, and ``logs``.
      cfg: the compiled configuration; its seed does not matter.
    """

    folder: Path
    cfg: EasyDict

    @classmethod
    def of(cls, cfg: EasyDict) -> SeedRuns:
        """The folder of a configuration: ``<run.out_dir>/<exp_name>-seeds``, or with ``-1, -2, ...`` behind it.

        It is the one that holds runs of the same settings; if there is none, the first free name.

        Raises:
          ConfigError: if it cannot be written.
        """
        folders = _names(Path(cfg.run.out_dir) / f"{cfg.exp_name}-seeds")
        free = next(folder for folder in folders if not folder.exists() or _is_of(folder, cfg))
        runs = cls(free, cfg)
        try:
            runs.prepare()
        except OSError as error:
            raise ConfigError(f"run.out_dir={cfg.run.out_dir!r}: cannot write: {error.strerror}") from None
        return runs

    def prepare(self) -> None:
        """Makes what is missing of the folder, its logs and its settings.

        Raises:
          OSError: if it cannot be written.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        if not self.settings.exists():
            save_config(self.cfg, self.settings)

    def renew(self) -> dict[str, tuple[Any, Any]]:
        """Lets the seeds that are still to be trained use the settings of `cfg`, which change no return.

        To be called with the folder locked.

        Returns:
          What differs from those of before, by key: the old value and the new one.
        Raises:
          ConfigError: if those of before cannot be read, or these cannot be written.
        """
        before, now = load_config(self.settings).run, self.cfg.run
        changed = {
            f"run.{key}": (before.get(key), now.get(key))
            for key in sorted({*before, *now} - {"out_dir"})
            if before.get(key) != now.get(key)
        }
        if changed:
            try:
                save_config(self.cfg, self.settings)
            except OSError as error:
                raise ConfigError(f"{self.settings}: cannot write: {error.strerror}") from None
        return changed

    def keep(self, lock: RunLock) -> bool:
        """Makes the folder again if it was removed or renamed since it was locked; returns whether it was.

        Raises:
          RunInUseError: another process trains seeds in a folder of that name.
        """
        gone = lost(self.folder)
        if gone:
            lock.renew()
        # A disk that fails is told by the seeds that need it.
        with contextlib.suppress(OSError):
            self.prepare()
        return gone

    @property
    def settings(self) -> Path:
        """The compiled configuration that all seeds are trained with."""
        return self.folder / SEEDS_SETTINGS

    @property
    def logs(self) -> Path:
        """Folder of what the processes printed, a file for each seed."""
        return self.folder / "logs"

    @property
    def curve(self) -> Path:
        """Picture of the learning curve over the seeds."""
        return self.folder / "curve.png"

    @property
    def summary(self) -> Path:
        """Figures of all finished seeds."""
        return self.folder / "summary.json"

    def finished(self, seed: int) -> RunDir | None:
        """The run folder of a seed whose run has come to its own end and saved it; None if there is no such run."""
        found = RunDir.earlier(self._of(seed))
        if not found:
            return None
        figures = found[0].figures()
        ended = figures.get("stop_reason") not in (None, *_INTERRUPTED) and not figures.get("unsaved")
        return found[0] if ended else None

    def command(self, seed: int) -> Command:
        """What trains a seed, from its newest checkpoint or from the beginning."""
        own = self._of(seed)
        changed = (f"seed={seed}", f"exp_name={own.exp_name}", f"run.out_dir={json.dumps(own.run.out_dir)}")
        # The code that the settings name was checked when they were compiled from what the user gave.
        args = ["train", str(self.settings), *changed, "--resume", "--trust"]
        return Command(_MINDING, args, self.logs / f"{own.exp_name}.txt")

    def _of(self, seed: int) -> EasyDict:
        """The configuration of a seed, as far as it is about the place of its run."""
        return EasyDict(exp_name=name_of(seed), run=dict(out_dir=str(self.folder)))


def name_of(seed: int) -> str:
    """The name of a seed's run folder and experiment."""
    return f"seed_{seed}"


def _names(first: Path) -> Iterator[Path]:
    yield first
    yield from (first.with_name(f"{first.name}-{number}") for number in itertools.count(1))


def _is_of(folder: Path, cfg: EasyDict) -> bool:
    """Whether a folder of seeds has these settings."""
    try:
        return settings_of(load_config(folder / "settings.yaml")) == settings_of(cfg)
    except ConfigError:
        return False
