"""Comparison of runs: the final evaluation of each, and the settings in which they differ."""

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.config.options import plain, setting_at
from minding.engine.errors import ConfigError
from minding.engine.process.signals import SIGNALS
from minding.engine.run.aggregates import Aggregate, aggregate
from minding.engine.run.curves import EVAL_RETURN, read_each, series, settings_of
from minding.engine.run.metrics import clock_of, read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import Score, final_scores
from minding.engine.run.status import read_status

INTERRUPTED = tuple(number.name for number in SIGNALS)
_NOT_COMPARED = ("env.spec",)
"""Sections that follow from other settings."""


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """One of several compared runs.

    Attributes:
      evaluation: mean, standard deviation and number of episodes of the final evaluation, or of the last one on the
        way if a run that has ended makes no final one: a chain in a script.
      on_the_way: whether it is the latter.
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
    on_the_way: bool = False
    algorithm: str = ""
    seed: str = ""


def compare_runs(paths: Iterable[str | os.PathLike[str]]) -> list[ComparedRun]:
    """Compares runs: those with the highest final evaluation first, those without one last.

    Returns of different environments cannot be compared, so the runs of one environment stand together, in the order in
    which their environments were given. A folder of seeds represents the runs in it. A folder that cannot be read is
    left out with a warning.
    """
    runs = read_each(paths, _opened, "a run")
    differing = _differing_by_environment([cfg for _, cfg in runs])
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
    returns: Aggregate


def seeds_of(runs: Sequence[ComparedRun]) -> list[ComparedSeeds]:
    """The configurations among the runs of which several seeds were evaluated, in the order of the runs."""
    groups = [tuple(sorted(group, key=value_of, reverse=True)) for group in _by_configuration(runs) if len(group) > 1]
    return [ComparedSeeds(group, aggregate(list(map(value_of, group)))) for group in groups]


def _by_configuration(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    """The evaluated runs by configuration; of two runs with the same settings and seed, the last by name counts."""
    groups: dict[tuple[str, str], dict[str, ComparedRun]] = {}
    for run in runs:
        if run.evaluation is None:
            continue
        settings = {path: value for path, value in run.settings.items() if path != "seed"}
        members = groups.setdefault((run.env_id, repr(settings)), {})
        if run.seed not in members or str(run.path) > str(members[run.seed].path):
            members[run.seed] = run
    return [list(group.values()) for group in groups.values()]


SUITE, METRIC = "minding", "mean_episode_return"
"""The names of the suite and of the metric in `score_table`."""


def score_table(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """The scores of runs by environment, algorithm and seed, in the format of marl-eval; see `scores_of_run`.

    The name of an algorithm contains the settings in which it differs from others in its environment.
    """
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    groups = _by_configuration(runs)
    for group in groups:
        rivals = [
            each[0] for each in groups if (each[0].env_id, each[0].algorithm) == (group[0].env_id, group[0].algorithm)
        ]
        settings = {
            key: value
            for key, value in group[0].settings.items()
            if key != "seed" and any(each.settings.get(key) != value for each in rivals)
        }
        name = ", ".join([group[0].algorithm, *(f"{key}={value}" for key, value in settings.items())])
        seeds = tasks.setdefault(group[0].env_id, {}).setdefault(name, {})
        for run in group:
            try:
                points = series(read_metrics(RunDir(run.path).metrics), EVAL_RETURN)
            except ConfigError:
                points = np.empty(0), np.empty(0)
            seeds[f"seed_{run.seed}"] = scores_of_run(*points, value_of(run))
    return {SUITE: tasks}


def scores_of_run(steps: Iterable[float], returns: Iterable[float], final: float) -> dict[str, Any]:
    """One run as marl-eval reads it (Gorsane et al., 2022, https://arxiv.org/abs/2209.10485, appendix).

    Evaluations on the way are the steps of the run, and the mean of its final evaluation is its absolute metric.
    """
    evaluations = {
        f"step_{number}": {"step_count": int(count), METRIC: [float(value)]}
        for number, (count, value) in enumerate(zip(steps, returns, strict=True))
    }
    return {**evaluations, "absolute_metrics": {METRIC: [float(final)]}}


def value_of(run: ComparedRun) -> float:
    """The mean of the run's evaluation."""
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


def _differing_by_environment(cfgs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The algorithm of each configuration, and the settings in which it differs from others of its environment.

    Settings of the section `policy` are compared among the configurations of one algorithm.
    """
    kinds = [(str(setting_at(cfg, "env.env_id")), str(setting_at(cfg, "policy.type"))) for cfg in cfgs]
    named = len({algorithm for _, algorithm in kinds}) > 1

    @functools.cache
    def among(*kind: str) -> dict[int, dict[str, Any]]:
        alike = [place for place, each in enumerate(kinds) if each[: len(kind)] == kind]
        return dict(zip(alike, differing_settings([cfgs[place] for place in alike]), strict=True))

    found = []
    for place, (env_id, algorithm) in enumerate(kinds):
        own, beside = among(env_id, algorithm)[place], among(env_id)[place]
        others = {path: value for path, value in beside.items() if not path.startswith("policy.")}
        found.append({**({"policy.type": algorithm} if named else {}), **others, **own})
    return found


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
    on_the_way = "unit" not in figures
    if on_the_way:
        figures = {**_figures_on_the_way(run, cfg), **figures}
    unit = figures["unit"]
    steps = figures.get(unit, 0)
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
        on_the_way and evaluation is not None,
        str((cfg.get("policy") or {}).get("type")),
        str(cfg.get("seed")),
    )


def _figures_on_the_way(run: RunDir, cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a run without a summary, from its metrics and status."""
    try:
        status = read_status(run.status)
        ended = status.state == "ended" and status.reason.partition(",")[0] not in INTERRUPTED
        found: dict[str, Any] = {"stop_reason": status.reason if status.state == "ended" else status.state}
    except ConfigError:
        found, ended = {}, False
    try:
        metrics = read_metrics(run.metrics)
    except ConfigError:
        return {"unit": "env_step", **found}
    unit = clock_of(metrics) or "env_step"
    steps, seconds = (series(metrics, name)[1] for name in (unit, "time/seconds"))
    found |= {"unit": unit, unit: int(steps.max()) if len(steps) else 0}
    if len(seconds):
        found["wall_time"] = float(seconds.max())
    returns, spreads = (series(metrics, name)[1] for name in (EVAL_RETURN, "eval/return_std"))
    episodes = setting_at(cfg, "policy.eval.n_episode")
    if ended and len(returns) and isinstance(episodes, int):
        spread = float(spreads[-1]) if len(spreads) else 0.0
        found |= {"eval_return": float(returns[-1]), "eval_std": spread, "n_eval_episodes": episodes}
    return found
