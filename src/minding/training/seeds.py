"""One configuration with several seeds: the folder that holds their run folders, and the training of each seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minding.engine.config.compiler import load_config, save_config
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError
from minding.engine.process.commands import Command
from minding.engine.run.comparison import differing_settings
from minding.engine.run.curves import settings_of
from minding.engine.run.run_dir import SEEDS_SETTINGS, RunDir
from minding.training.group import RunGroup


class SeedRuns(RunGroup):
    """The runs of one configuration that differ only in their seed: run folders ``seed_<K>`` in one folder."""

    @classmethod
    def of(cls, cfg: Config) -> SeedRuns:
        """The folder of a configuration: ``<run.out_dir>/<exp_name>-seeds``, or the same name with ``-1, -2, ...``.

        It is the folder with runs of the same settings; if there is none, the first free name is used.

        Raises:
          ConfigError: the folder cannot be written.
        """
        folders = _names(Path(cfg.run.out_dir) / f"{cfg.exp_name}-seeds")
        free = next(folder for folder in folders if not folder.exists() or _is_of(folder, cfg))
        runs = cls(free, cfg)
        try:
            runs.prepare()
        except OSError as error:
            raise ConfigError(f"run.out_dir={cfg.run.out_dir!r}: cannot write: {error.strerror}") from None
        return runs

    def renew(self) -> dict[str, tuple[Any, Any]]:
        """Stores the settings of `cfg`, for the seeds that are still to be trained; they change no return.

        The folder must be locked.

        Returns:
          The settings that changed, by key: the old value and the new one.
        Raises:
          ConfigError: the old settings cannot be read, or the new ones cannot be written.
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

    def differences(self) -> dict[str, dict[str, tuple[Any, Any]]]:
        """Settings that differ from the earlier folders of the experiment: by folder, each value there and here."""
        first = Path(self.cfg.run.out_dir) / f"{self.cfg.exp_name}-seeds"
        found = {}
        for folder in itertools.takewhile(lambda each: each != self.folder and each.exists(), _names(first)):
            try:
                there, here = differing_settings([load_config(folder / SEEDS_SETTINGS), self.cfg])
            except ConfigError:
                # The folder holds something else.
                continue
            found[folder.name] = {path: (there.get(path), here.get(path)) for path in {**there, **here}}
        return found

    @property
    def curve(self) -> Path:
        """File with the picture of the learning curve over the seeds."""
        return self.folder / "curve.png"

    @property
    def summary(self) -> Path:
        """File with the figures of all finished seeds."""
        return self.folder / "summary.json"

    def finished(self, seed: int) -> RunDir | None:
        """The run folder of a seed whose run has finished and was saved; None if there is no such run."""
        return self.finished_run(name_of(seed))

    def command(self, seed: int) -> Command:
        """The process that trains a seed, from its newest checkpoint or from the start."""
        return self.command_of(name_of(seed), [f"seed={seed}"])


def name_of(seed: int) -> str:
    """The name of a seed's run folder and experiment."""
    return f"seed_{seed}"


def _names(first: Path) -> Iterator[Path]:
    yield first
    yield from (first.with_name(f"{first.name}-{number}") for number in itertools.count(1))


def _is_of(folder: Path, cfg: Config) -> bool:
    """Whether the runs in a folder of seeds have these settings."""
    try:
        return settings_of(load_config(folder / SEEDS_SETTINGS)) == settings_of(cfg)
    except ConfigError:
        return False
