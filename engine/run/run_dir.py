"""The run folder, with a run's configuration, metrics, checkpoints and summary."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from minding.engine.checkpoint import resumable_checkpoints, set_aside
from minding.engine.config.compiler import load_config, save_config
from minding.engine.config.config import Config
from minding.engine.config.identity import check_not_shortened, describe_differences, differences, identity
from minding.engine.config.options import setting_at
from minding.engine.config.trust import is_foreign, read_foreign, save_own
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError, NoCheckpointError, RunInUseError, nearest
from minding.engine.files import json_text, read_text, replace
from minding.engine.paths import absolute, check_readable, expanded, folder_of, shown
from minding.engine.process.alive import start_ticks
from minding.engine.run import zoo
from minding.engine.run.lock import LOCK_FILE, RunLock
from minding.engine.run.run_summary import wrong_figure
from minding.engine.run.status import read_status

SEEDS_SETTINGS = "settings.yaml"
"""In a folder of seeds: the configuration of all of them."""
_MAX_SUMMARY = 1 << 24
BEFORE = {"config.yaml", "status.json", LOCK_FILE}
"""Contents of a run folder before the run has done anything."""


@dataclasses.dataclass(frozen=True)
class RunDir:
    """Names of the files in one run folder; `create` makes a new one, `open`, `newest` and `earlier` find earlier ones.

    Attributes:
      path: the folder, from the root: an environment may change the current folder.
      trust: whether its configuration may set anything; see `engine.config.trust`.
      own: settings that the caller replaces with his own: the configuration may set these.
    """

    path: Path
    trust: bool = False
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", absolute(self.path))

    @classmethod
    def create(cls, cfg: Config) -> RunDir:
        """Creates ``<run.out_dir>/<exp_name>``, or the first free ``<exp_name>-1, -2, ...``, and saves `cfg` in it;
        ConfigError if it cannot be written."""
        out_dir = absolute(cfg.run.out_dir)
        for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(1))):
            run_dir = cls(out_dir / f"{cfg.exp_name}{suffix}", trust=True)
            made = False
            try:
                run_dir.path.mkdir(parents=True)
                made = True
                save_own(cfg, run_dir.config)
            except FileExistsError:
                if out_dir.is_dir():
                    continue
                raise ConfigError(f"run.out_dir={cfg.run.out_dir!r} is not a folder") from None
            except OSError as error:
                if made:
                    shutil.rmtree(run_dir.path, ignore_errors=True)
                raise ConfigError(f"run.out_dir={cfg.run.out_dir!r}: cannot write: {error.strerror}") from None
            return run_dir
        raise AssertionError("the suffixes never end")

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False, own: Collection[str] = ()) -> RunDir:
        """Opens the folder of an earlier run.

        Args:
          path: the folder, or ``zoo/NAME``, an agent that comes with minding (see `engine.run.zoo`).
          trust, own: as in `RunDir`.

        Raises:
          ConfigError: if there is no such folder, it contains no run, or it cannot be read; names the nearest run
            in the same folder.
        """
        path = zoo.located(folder_of(path, "RunDir.open"))
        check_readable(path)
        if (path / "config.yaml").is_file():
            return cls(path, trust, (*own,))
        if path.is_dir():
            seeds = run_folders(path)
            if seeds != [path]:
                raise ConfigError(
                    f"{shown(path)!r} holds the runs of {len(seeds)} seeds: give one of them, such as "
                    f"{shown(seeds[0])!r}"
                )
            within = sorted(each.parent for each in path.glob("*/config.yaml"))
            hint = f"; give a run folder in it, such as {shown(within[0])!r}" if within else ""
            raise ConfigError(f"{shown(path)!r} is not a run folder: it holds no config.yaml{hint}")
        if path.exists():
            raise ConfigError(f"{shown(path)!r} is a file: expected a run folder, such as runs/cartpole_ppo")
        beside = [each for each in sorted(path.parent.iterdir()) if each.is_dir()] if path.parent.is_dir() else []
        raise ConfigError(f"no run folder {shown(path)!r}{nearest(path.name, [each.name for each in beside])}")

    @classmethod
    def restart(cls, cfg: Config) -> RunDir:
        """The folder in which a run without a checkpoint begins: its own, if it was killed there before the first one,
        or a new one. What it had written there is set aside as ``left-<time>-<name>``."""
        for run_dir in cls.earlier(cfg):
            with contextlib.suppress(ConfigError, RunInUseError, OSError), RunLock(run_dir.path):
                written = [each for each in run_dir.path.iterdir() if each.name not in BEFORE]
                status = read_status(run_dir.status) if written or run_dir.status.exists() else None
                killed = status is None or (status.state == "running" and status.born != start_ticks(os.getpid()))
                if killed and not run_dir.resume and not differences(identity(run_dir.read_config()), cfg):
                    for path in written:
                        if not path.name.startswith("left-"):
                            set_aside(path)
                    save_own(cfg, run_dir.config)
                    return cls(run_dir.path, trust=True)
        return cls.create(cfg)

    @classmethod
    def open_or_create(cls, cfg: Config) -> RunDir:
        """Opens the newest folder of the run that `cfg` describes; a run without a checkpoint begins, see `restart`.

        A script that is started again continues its run: give `resume` to ``task.start(resume=...)``. `cfg.exp_name`
        becomes the name of the folder, so that ``CkptSaver(policy, cfg.exp_name)`` saves there.

        Raises:
          ConfigError: as for `create`, or ``cfg.run`` limits the run to fewer steps than it has made.
        """
        try:
            run_dir = cls.newest(cfg)
        except NoCheckpointError as error:
            if cls.earlier(cfg):
                console_logger().info("a new run begins: %s", error)
            run_dir = cls.restart(cfg)
        cfg.exp_name = run_dir.path.name
        return run_dir

    @classmethod
    def newest(cls, cfg: Config) -> RunDir:
        """Opens the newest folder of the run that `cfg` describes.

        Folders of ``cfg.exp_name`` with another identity (see `engine.config.identity.RUN`) belong to other runs.

        Raises:
          NoCheckpointError: no such run has a checkpoint; says what was found instead.
          ConfigError: ``cfg.run`` limits the run to fewer steps than it has made.
        """
        missing = f"no run {cfg.exp_name!r} in {cfg.run.out_dir!r}"
        for number, run_dir in enumerate(cls.earlier(cfg)):
            try:
                saved = run_dir.read_config()
                found = differences(identity(saved), cfg)
            except ConfigError as error:
                console_logger().warning("skipped: %s", error)
                continue
            if not found:
                if run_dir.resume is not None:
                    check_not_shortened(run_dir.path, run_dir.checkpoints, saved, cfg)
                    return run_dir
                missing = f"no checkpoint in {shown(run_dir.path)!r}"
                break
            if number == 0:
                missing = f"{shown(run_dir.path)!r} is another run ({describe_differences(found)})"
        raise NoCheckpointError(missing)

    @classmethod
    def earlier(cls, cfg: Config) -> list[RunDir]:
        """The run folders of ``cfg.exp_name``, the one with the highest number first."""
        out_dir, numbers = absolute(cfg.run.out_dir), re.compile(re.escape(cfg.exp_name) + r"(?:-(\d+))?")
        found: dict[int, Path] = {}
        for path in out_dir.iterdir() if out_dir.is_dir() else ():
            match = numbers.fullmatch(path.name)
            if match and (path / "config.yaml").is_file():
                found[int(match[1] or 0)] = path
        return [cls(found[number]) for number in sorted(found, reverse=True)]

    @property
    def config(self) -> Path:
        """The compiled configuration, runnable again."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One row per log event, one column per metric."""
        return self.path / "metrics.csv"

    @property
    def episodes(self) -> Path:
        """One line per training episode."""
        return self.path / "episodes.csv"

    @property
    def tensorboard(self) -> Path:
        """Folder of TensorBoard event files."""
        return self.path / "tb"

    @property
    def trackers(self) -> Path:
        """Folder of the files of trackers such as W&B, see `engine.run.trackers`."""
        return self.path / "trackers"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "ckpt"

    @property
    def resume(self) -> str | None:
        """The argument `resume` of `Task.start`: ``"latest"`` if there is a checkpoint to continue from, else None."""
        return "latest" if resumable_checkpoints(self.checkpoints) else None

    @property
    def models(self) -> Path:
        """Folder of the model pool, see `engine.run.pool`."""
        return self.path / "models"

    @property
    def curve(self) -> Path:
        """Picture of the learning curve."""
        return self.path / "curve.png"

    @property
    def video(self) -> Path:
        """Video of an episode of the trained policy."""
        return self.path / "episode.gif"

    @property
    def products(self) -> Path:
        """Folder for files that commands create from the run, such as a video.

        It is the run folder itself; for an agent of the zoo, which is part of the installation, it is a folder of the
        agent's name in the current folder.
        """
        return absolute(self.path.name) if zoo.is_agent(self.path) else self.path

    @property
    def summary(self) -> Path:
        """Figures of the finished run."""
        return self.path / "summary.json"

    @property
    def status(self) -> Path:
        """File with the progress of the run and the activities of its workers, see `engine.run.status`."""
        return self.path / "status.json"

    def read_config(self) -> Config:
        """The configuration with which the run was last started or resumed; code that it names is only text.
        ConfigError if it is missing, damaged, or not the configuration of a run."""
        return self._checked(load_config(self.config))

    def load_config(self, *, learns: bool = False) -> Config:
        """Like `read_config`, for use: code that it names may run.

        Args:
          learns: whether a run starts or continues with it. To act, settings that reach out of a run are not needed:
            unless the run is the user's own, they have their defaults.
        Raises:
          ConfigError: as in `read_config`.
          TrustError: as in `engine.config.trust.read_foreign`.
        """
        return self._checked(read_foreign(self.config, trust=self.trust, own=self.own, learns=learns))

    def _checked(self, cfg: Config) -> Config:
        for path, what in (("env.env_id", "environment"), ("policy.type", "algorithm")):
            if not isinstance(setting_at(cfg, path), str):
                raise ConfigError(f"{str(self.config)!r} is not the configuration of a run: it names no {what}")
        return cfg

    def check_writable(self) -> None:
        """Refuses, with a ConfigError, to continue a run in a folder that is on a read-only disk or belongs to somebody
        else."""
        if not os.access(self.path, os.W_OK):
            raise ConfigError(
                f"the run folder {shown(self.path)!r} cannot be written, so that nothing of the run would be kept: "
                "copy it to another place"
            )

    def update_config(self, cfg: Config) -> None:
        """Saves the settings with which the run continues, atomically, if they differ; logs a failing disk."""
        try:
            there = self.config.exists()
            if not there or load_config(self.config) != cfg:
                # A run of somebody else's does not become the user's own by being trusted once.
                save_config(cfg, self.config) if there and is_foreign(self.config) else save_own(cfg, self.config)
        except OSError as error:
            console_logger().warning("%s keeps its earlier settings: %s", self.config, error.strerror)

    def read_figures(self) -> Mapping[str, Any]:
        """The figures in `summary`, empty if there is no such file; ConfigError if it cannot be read or holds something
        else."""
        try:
            text = read_text(self.summary, _MAX_SUMMARY)
            figures = json.loads(text) if text.strip() else None
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.summary} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.summary} is not the summary of a run: {error}") from None
        if figures is None:
            raise ConfigError(f"{self.summary} is empty")
        if not isinstance(figures, dict):
            raise ConfigError(f"{self.summary} is not the summary of a run: it is a {type(figures).__name__}")
        figures = {key: _known(each) if isinstance(each, dict) else each for key, each in _known(figures).items()}
        wrong = wrong_figure(figures)
        if wrong:
            raise ConfigError(f"{self.summary} is not the summary of a run: {wrong}")
        return figures

    def figures(self) -> Mapping[str, Any]:
        """The figures in `summary`; empty if there is no such file, or, with a warning, if it cannot be read."""
        try:
            return self.read_figures()
        except ConfigError as error:
            console_logger().warning("%s: the figures of this run are left out, as if it had not ended", error)
            return {}

    def write_summary(self, figures: Mapping[str, object]) -> None:
        """Writes `figures` (numbers, strings and dicts of these) to `summary`, without the table of times, and without
        the places of the run, which hold the user's name; logs a failing disk."""
        kept = {name: value for name, value in figures.items() if name not in ("profile", "run_dir", "ckpt")}
        try:
            replace(self.summary, json_text(kept))
        except OSError as error:
            console_logger().warning("%s was not written: %s", self.summary, error.strerror)


def _known(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures without null, which stands for NaN."""
    return {key: value for key, value in figures.items() if value is not None}


def run_folders(path: str | os.PathLike[str]) -> list[Path]:
    """The run folders in a folder that ``minding train --seeds`` made, by seed; for any other folder, itself."""
    given = expanded(path)
    path = absolute(given)
    check_readable(path)
    if (path / "config.yaml").is_file() or not (path / SEEDS_SETTINGS).is_file():
        return [given]
    seeds = [each for each in path.glob("seed_*") if re.fullmatch(r"seed_\d+", each.name)]
    found = [each for each in seeds if (each / "config.yaml").is_file()]
    return sorted(found, key=lambda each: int(each.name.removeprefix("seed_"))) or [given]
