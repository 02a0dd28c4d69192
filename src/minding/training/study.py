"""The folder of a search over settings: its search space, its configuration, and the runs of its trials."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from minding.engine.config.compiler import RUN_SCHEMA, load_config
from minding.engine.config.config import Config
from minding.engine.config.limits import run_length
from minding.engine.config.space import Choice, Range, Space, check_space, load_space
from minding.engine.errors import ConfigError
from minding.engine.files import replace
from minding.engine.run.comparison import differing_settings
from minding.engine.run.curves import settings_of
from minding.envs import config_schema
from minding.policies import get_algorithm
from minding.training.run_group import RunGroup

LEAST_EVALUATIONS = 3
"""Least number of evaluations, because the objective is the mean of the last third of them."""
Returns = Mapping[int, float]
"""The means of a trial's evaluations by the multiple of ``policy.eval.freq`` after which each was made."""
_SPACE = "space.yaml"


def search_space(cfg: Config, file: str | None) -> dict[str, Range | Choice]:
    """The search space of the algorithm, or the search space in a file.

    Raises:
      ConfigError: the file cannot be read, names no setting, or gives a setting a value that it cannot have.
    """
    algorithm = get_algorithm(cfg.policy.type)
    schema = {**RUN_SCHEMA, "env": config_schema(), "policy": algorithm.config_schema()}
    if file is None:
        return check_space(algorithm.search_space(), schema, f"the space of {algorithm.name}")
    return check_space(load_space(file), schema, f"space {file!r}")


def compared(count: int) -> range:
    """The evaluations that are compared, by their multiples: the last third, their number rounded up.

    Args:
      count: number of evaluations of each trial, see `evaluations_of`.
    """
    return range(count - math.ceil(count / 3) + 1, count + 1)


def objective(returns: Returns, count: int) -> float:
    """The objective of a trial: the mean over the evaluations that are `compared`, at the same steps in all trials.

    The maximum instead of the mean would favor trials whose evaluations vary more.

    Raises:
      ConfigError: the trial made too few evaluations, or lacks one of these.
    """
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
    """The runs of a search, ``trial_<K>``, in one folder with its space, journal and results.

    Attributes:
      space: the settings in which trials differ.
    """

    space: Space

    @classmethod
    def at(cls, folder: Path, cfg: Config, space: Space) -> StudyRuns:
        """The folder of a search, which may be new or belong to an earlier start of the same search.

        Args:
          folder: the folder of the search.
          cfg: the compiled configuration of its trials.
          space: the search space.
        Raises:
          ConfigError: the folder holds something else, or a search with another configuration or space.
        """
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
        """Creates the folder, its logs, its settings and its space, if they are missing.

        Raises:
          OSError: a file or folder cannot be written.
        """
        super().prepare()
        if not (self.folder / _SPACE).exists():
            replace(self.folder / _SPACE, yaml.safe_dump(_plain(self.space), sort_keys=False))

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


def trial_config(cfg: Config, given: Mapping[str, Any]) -> Config:
    """The configuration that trials share.

    They run to their full length, so that their evaluations can be compared, and end with a short final evaluation,
    which is not the objective, unless the user gave its length.

    Args:
      cfg: the compiled configuration of the user.
      given: the command line as a tree of settings.
    Raises:
      ConfigError: the trials would have too few evaluations.
    """
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
    if "final_episodes" not in (given.get("run") or {}):
        episodes = min(episodes, cfg.policy.eval.n_episode)
    return Config({**cfg, "run": {**cfg.run, "stop_value": None, "final_episodes": episodes}})


def evaluations_of(cfg: Config) -> int:
    """The number of evaluations that a run makes before its end even if a rollout takes all steps between two of them;
    further ones are not compared."""
    return int(run_length(cfg).steps // cfg.policy.eval.freq) - 1
