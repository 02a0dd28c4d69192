"""Comparison of runs: the final evaluation of each, and the settings in which they differ."""

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minding.engine.config.options import plain
from minding.engine.errors import ConfigError
from minding.engine.run.aggregates import Estimate, aggregate
from minding.engine.run.curves import read_each, settings_of
from minding.engine.run.metrics import clock_of, read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import Score, final_scores

_NOT_COMPARED = ("env.spec",)
"""Sections that follow from other settings."""


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """One of several compared runs.

    Attributes:
      seconds: time of training in seconds; None if the run has not ended.
    """

    path: Path
    evaluation: tuple[float, float, int] | None
    unit: str
    steps: int
    seconds: float | None
    ended_by: str
    settings: Mapping[str, Any]
    judged: Mapping[str, float] = dataclasses.field(default_factory=dict)
    env_id: str = ""
    scores: Mapping[str, Score] = dataclasses.field(default_factory=dict)


def compare_runs(paths: Iterable[str | os.PathLike[str]]) -> list[ComparedRun]:
    """Compares runs: those with the highest final evaluation first, those without one last.

    Returns of different environments cannot be compared, so the runs of one environment stand together, in the order in
    which their environments were given. A folder of seeds represents the runs in it. A folder that cannot be read is
    left out with a warning.
    """
    runs = read_each(paths, _opened, "a run")
    differing = differing_settings([cfg for _, cfg in runs])
    compared = [_compared(run, cfg, settings) for (run, cfg), settings in zip(runs, differing, strict=True)]
    environments = list(dict.fromkeys(run.env_id for run in compared))

    def place(run: ComparedRun) -> tuple[int, float]:
        return environments.index(run.env_id), math.inf if run.evaluation is None else -run.evaluation[0]

    return sorted(compared, key=place)


def _opened(path: Path) -> tuple[RunDir, Mapping[str, Any]]:
    run = RunDir.open(path)
    return run, plain(run.read_config())


@dataclasses.dataclass(frozen=True)
class ComparedSeeds:
    """Runs that differ in nothing but their seed."""

    runs: tuple[ComparedRun, ...]
    mean: Estimate


def seeds_of(runs: Sequence[ComparedRun]) -> list[ComparedSeeds]:
    """The configurations among the runs of which several seeds were evaluated, in the order of the runs. Of two runs
    with the same settings and seed, the last by name counts."""
    groups: dict[tuple[str, str], dict[str, ComparedRun]] = {}
    for run in runs:
        if run.evaluation is None:
            continue
        settings = {path: value for path, value in run.settings.items() if path != "seed"}
        members = groups.setdefault((run.env_id, repr(settings)), {})
        seed = str(run.settings.get("seed"))
        if seed not in members or str(run.path) > str(members[seed].path):
            members[seed] = run
    found = [tuple(sorted(group.values(), key=_value_of, reverse=True)) for group in groups.values() if len(group) > 1]
    return [ComparedSeeds(group, aggregate(list(map(_value_of, group))).mean) for group in found]


def _value_of(run: ComparedRun) -> float:
    assert run.evaluation is not None
    return run.evaluation[0]


def best_of(runs: Sequence[ComparedRun]) -> dict[str, ComparedRun]:
    """By environment, the run with the highest final evaluation; environments with a single run are left out."""
    best = {}
    for env_id in dict.fromkeys(run.env_id for run in runs):
        judged = [run for run in runs if run.env_id == env_id and run.evaluation is not None]
        if len(judged) > 1:
            best[env_id] = judged[0]
    return best


def differing_settings(cfgs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The settings in which configurations differ, by path, for each of them. Settings that do not affect returns (the
    folder of a run, the frequency of logs) are not compared. If algorithms differ, a setting of the section `policy`
    that only some of them have is compared among those."""
    flat = [dict(_leaves({"seed": cfg.get("seed"), **settings_of(cfg)})) for cfg in cfgs]  # type: ignore[arg-type]
    one_algorithm = len({str(each.get("policy.type")) for each in flat}) == 1
    paths = dict.fromkeys(path for each in flat for path in each)

    def differs(path: str) -> bool:
        values = [each[path] for each in flat if path in each]
        if any(value != values[0] for value in values):
            return True
        return len(values) < len(flat) and (one_algorithm or not path.startswith("policy."))

    shown = [path for path in paths if differs(path)]
    return [{path: each[path] for path in shown if path in each} for each in flat]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if path in _NOT_COMPARED:
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _compared(run: RunDir, cfg: Mapping[str, Any], settings: Mapping[str, Any]) -> ComparedRun:
    figures = run.figures()
    unit, steps = figures.get("unit"), 0
    if unit is not None:
        steps = figures.get(unit, 0)
    else:
        unit, steps = _position(run)
    evaluation = None
    if figures.get("n_eval_episodes") and math.isfinite(figures["eval_return"]):
        evaluation = (float(figures["eval_return"]), float(figures["eval_std"]), figures["n_eval_episodes"])
    seconds, ended_by = figures.get("wall_time"), figures.get("stop_reason", "")
    return ComparedRun(
        run.path,
        evaluation,
        unit,
        steps,
        seconds,
        ended_by,
        settings,
        figures.get("data_eval", {}),
        str((cfg.get("env") or {}).get("env_id")),
        final_scores(cfg, figures),
    )


def _position(run: RunDir) -> tuple[str, int]:
    """Unit and value of the clock of a run without a summary."""
    try:
        metrics = read_metrics(run.metrics)
    except ConfigError:
        return "env_step", 0
    unit = clock_of(metrics) or "env_step"
    steps = metrics[unit][[math.isfinite(step) for step in metrics[unit]]]
    return unit, int(steps.max()) if len(steps) else 0
