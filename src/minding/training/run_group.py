"""Several runs in one folder, each trained by its own process: one configuration with several seeds, or the trials of a
search over settings."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minding.engine.config.compiler import RUN_SCHEMA, Overrides, load_config
from minding.engine.config.config import Config, run_length
from minding.engine.config.space import Choice, Range, Space, check_space, load_space
from minding.engine.config.trust import own_text, save_own
from minding.engine.config.yaml_text import one_line, yaml_of
from minding.engine.errors import ConfigError
from minding.engine.files import Folder, replace
from minding.engine.paths import absolute
from minding.engine.process.commands import Command
from minding.engine.process.signals import SIGNALS
from minding.engine.run.comparison import differing_settings
from minding.engine.run.curves import settings_of
from minding.engine.run.lock import RunLock, lost
from minding.engine.run.run_dir import SEEDS_SETTINGS, RunDir
from minding.envs import config_schema
from minding.policies import get_algorithm

_MINDING = "minding.cli:main"
_INTERRUPTED = tuple(number.name for number in SIGNALS)


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs of one configuration that differ in some settings, in one folder."""

    folder: Path
    cfg: Config

    def prepare(self) -> None:
        """Creates the folder, its logs and its settings, if they are missing."""
        with Folder(self.folder, make=True, follow=True) as folder:
            self._complete(folder)

    def _complete(self, folder: Folder) -> None:
        """Adds to the open folder what it lacks; a folder that has its name meanwhile stays as it is."""
        if folder.status(self.logs.name) is None:
            folder.folder(self.logs.name, new=True).close()
        if folder.status(SEEDS_SETTINGS) is None:
            folder.replace(SEEDS_SETTINGS, own_text(self.cfg).encode())

    def keep(self, lock: RunLock) -> bool:
        """Recreates the folder if it was removed or renamed since it was locked; returns whether it was."""
        gone = lost(self.folder)
        if gone:
            lock.renew()
        # The runs report a disk that fails. A folder that is removed only now is not created here: it would have no
        # lock until the next call.
        with contextlib.suppress(OSError), Folder(self.folder, follow=True) as folder:
            self._complete(folder)
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
        """The process that trains a run, from its newest checkpoint or from the start."""
        placed = (f"exp_name={name}", f"run.out_dir={one_line(str(self.folder))}")
        # The code that the settings name was already checked when the user's settings were compiled.
        args = ["train", str(self.settings), *changed, *placed, "--resume", "--trust"]
        return Command(_MINDING, args, self.logs / f"{name}.txt")


class SeedRuns(RunGroup):
    """The runs of one configuration that differ only in their seed: run folders ``seed_<K>`` in one folder."""

    @classmethod
    def of(cls, cfg: Config) -> SeedRuns:
        """The folder of a configuration: ``<run.out_dir>/<exp_name>-seeds``, or the same name with ``-1, -2, ...``. It
        is the folder with runs of the same settings; if there is none, the first free name is used."""
        folders = _names(absolute(cfg.run.out_dir) / f"{cfg.exp_name}-seeds")
        free = next(folder for folder in folders if not folder.exists() or _is_of(folder, cfg))
        runs = cls(free, cfg)
        try:
            runs.prepare()
        except OSError as error:
            raise ConfigError(f"run.out_dir={cfg.run.out_dir!r}: cannot write: {error.strerror}") from None
        return runs

    def renew(self) -> dict[str, tuple[Any, Any]]:
        """Stores the settings of `cfg`, for the seeds that are still to be trained; they change no return. The folder
        must be locked."""
        before, now = load_config(self.settings).run, self.cfg.run
        changed = {
            f"run.{key}": (before.get(key), now.get(key))
            for key in sorted({*before, *now} - {"out_dir"})
            if before.get(key) != now.get(key)
        }
        if changed:
            try:
                save_own(self.cfg, self.settings)
            except OSError as error:
                raise ConfigError(f"{self.settings}: cannot write: {error.strerror}") from None
        return changed

    def differences(self) -> dict[str, dict[str, tuple[Any, Any]]]:
        """Settings that differ from the earlier folders of the experiment: by folder, each value there and here."""
        first = absolute(self.cfg.run.out_dir) / f"{self.cfg.exp_name}-seeds"
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


LEAST_EVALUATIONS = 3
"""Least number of evaluations, because the objective is the mean of the last third of them."""
Returns = Mapping[int, float]
"""The means of a trial's evaluations by the multiple of ``policy.eval.freq`` after which each was made."""
_SPACE = "space.yaml"


def search_space(cfg: Config, file: str | None) -> dict[str, Range | Choice]:
    """The search space of the algorithm, or the search space in a file."""
    algorithm = get_algorithm(cfg.policy.type)
    schema = {**RUN_SCHEMA, "env": config_schema(), "policy": algorithm.config_schema()}
    if file is None:
        return check_space(algorithm.search_space(), schema, f"the space of {algorithm.name}")
    return check_space(load_space(file), schema, f"space {file!r}")


def compared(count: int) -> range:
    """The evaluations that are compared, by their multiples: the last third, their number rounded up."""
    return range(count - math.ceil(count / 3) + 1, count + 1)


def objective(returns: Returns, count: int) -> float:
    """The objective of a trial: the mean over the evaluations that are `compared`, at the same steps in all trials. The
    maximum instead of the mean would favor trials whose evaluations vary more."""
    last = [returns[place] for place in compared(count) if place in returns]
    made = sum(place <= count for place in returns)
    if made < LEAST_EVALUATIONS or len(last) < len(compared(count)):
        raise ConfigError(
            f"it made {made} of the {count} evaluations, whose last third is compared: its rollouts "
            "(policy.collect.n_sample) may be longer than policy.eval.freq, or it began to learn too late"
        )
    return math.fsum(last) / len(last)


@dataclasses.dataclass(frozen=True)
class StudyRuns(RunGroup):
    """The runs of a search, ``trial_<K>``, in one folder with its space, journal and results."""

    space: Space

    @classmethod
    def at(cls, folder: Path, cfg: Config, space: Space) -> StudyRuns:
        """The folder of a search, which may be new or belong to an earlier start of the same search."""
        runs = cls(folder, cfg, space)
        if folder.is_dir() and any(each.name != ".lock" for each in folder.iterdir()):
            runs._check_same()
        elif folder.exists() and not folder.is_dir():
            raise ConfigError(f"study {str(folder)!r} is not a folder: give another folder with --study")
        return runs

    def _check_same(self) -> None:
        named = f"study {str(self.folder)!r}"
        if not (self.folder / _SPACE).is_file() or not self.settings.is_file():
            raise ConfigError(f"{named} is not the folder of a search: give another folder with --study")
        found = load_config(self.settings)
        if settings_of(found) != settings_of(self.cfg) or found.get("seed") != self.cfg.seed:
            there, here = differing_settings([found, self.cfg])
            paths = dict.fromkeys(["policy.type", "env.env_id", *there, *here])
            changes = [
                f"{path} is {json.dumps(there.get(path))} there and {json.dumps(here.get(path))} here"
                for path in paths
                if path in there or path in here
            ]
            more = f" and {len(changes) - 3} more settings differ" if len(changes) > 3 else ""
            raise ConfigError(
                f"{named} has another configuration: {'; '.join(changes[:3])}{more}: give another folder with --study"
            )
        if load_config(self.folder / _SPACE) != _plain(self.space):
            raise ConfigError(
                f"{named} has another search space, see {self.folder / _SPACE}: give another folder with --study"
            )

    def prepare(self) -> None:
        """Creates the folder, its logs, its settings and its space, if they are missing."""
        super().prepare()
        if not (self.folder / _SPACE).exists():
            replace(self.folder / _SPACE, yaml_of(_plain(self.space)))

    @property
    def journal(self) -> Path:
        """Optuna's journal of the trials."""
        return self.folder / "journal.log"

    @property
    def best(self) -> Path:
        """File with the configuration of the best trial, which `minding train` accepts."""
        return self.folder / "best.yaml"

    @property
    def summary(self) -> Path:
        """The file with all trials and how they ended."""
        return self.folder / "summary.json"

    @property
    def importance(self) -> Path:
        """File with the picture of the importance of each setting."""
        return self.folder / "importance.png"


def _plain(space: Space) -> dict[str, Any]:
    return {path: values.plain for path, values in space.items()}


def trial_config(cfg: Config, given: Overrides) -> Config:
    """The configuration that trials share. They run to their full length, so that their evaluations can be compared,
    and end with a short final evaluation, which is not the objective, unless the user gave its length."""
    unit, steps = run_length(cfg)
    if evaluations_of(cfg) < LEAST_EVALUATIONS:
        # Evaluations come after whole rollouts.
        rollout: int = (cfg.policy.collect.n_sample or 1) if unit == "env_step" else 1
        freq = max(steps // 10, rollout)
        longer = "" if steps // freq > LEAST_EVALUATIONS else f" run.max_{unit}={10 * freq}"
        raise ConfigError(
            f"policy.eval.freq={cfg.policy.eval.freq} and run.max_{unit}={steps}: a trial needs at least "
            f"{LEAST_EVALUATIONS} evaluations before its end: add policy.eval.freq={freq}{longer}"
        )
    episodes = cfg.run.final_episodes
    if given.value("run.final_episodes") is None:
        episodes = min(episodes, cfg.policy.eval.n_episode)
    return Config({**cfg, "run": {**cfg.run, "stop_value": None, "final_episodes": episodes}})


def evaluations_of(cfg: Config) -> int:
    """The number of evaluations that a run makes before its end even if a rollout takes all steps between two of them;
    further ones are not compared."""
    return int(run_length(cfg).steps // cfg.policy.eval.freq) - 1
