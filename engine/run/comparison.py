"""Comparison of runs: the final evaluation of each, and the settings in which they differ."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.config.options import plain, setting_at
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.run.aggregates import Estimate, aggregate, improvements, performance_profile, thresholds_of
from minding.engine.run.curves import EVAL_RETURN, LEAST_SEEDS, read_each, series, settings_of
from minding.engine.run.metrics import clock_of, read_metrics
from minding.engine.run.run_dir import RunDir
from minding.engine.run.run_summary import Score, final_scores
from minding.engine.run.status import read_status

_KINDS = ("env.env_id", "policy.type")
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
    differing = differing_settings([cfg for _, cfg in runs])
    compared = [_compared(run, cfg, settings) for (run, cfg), settings in zip(runs, differing, strict=True)]
    environments = list(dict.fromkeys(run.env_id for run in compared))

    def place(run: ComparedRun) -> tuple[int, float]:
        return environments.index(run.env_id), math.inf if run.evaluation is None else -run.evaluation[0]

    return sorted(compared, key=place)


def _opened(path: Path) -> tuple[RunDir, Mapping[str, Any]]:
    run = RunDir.open(path)
    return run, plain(run.read_config())


def seeds_of(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    """The configurations among the runs of which several seeds were evaluated, each with its best run first.

    Of two runs with the same settings and seed, the last by name counts, here and in `score_table`; a warning names the
    other one.
    """
    groups = _by_configuration(runs)
    counted = {id(run) for group in groups for run in group}
    for run in runs:
        if run.evaluation is not None and id(run) not in counted:
            console_logger().warning(
                "left out over seeds and in scores: %s: a later run has its settings and seed %s", run.path, run.seed
            )
    return [sorted(group, key=value_of, reverse=True) for group in groups if len(group) > 1]


Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""The title, the header and the rows of a table."""


def tables_over_seeds(groups: Mapping[str, Sequence[float]], number: Callable[[float], str]) -> list[Table]:
    """The tables that compare configurations by the scores of their seeds."""

    def span(found: Estimate, count: int) -> str:
        ends = f" [{number(found.low)}, {number(found.high)}]{' (range)' * (count == LEAST_SEEDS)}"
        return f"{number(found.value)}{ends if count >= LEAST_SEEDS else ''}"

    found = {name: aggregate(scores) for name, scores in groups.items()}
    means = [(name, str(each.n), span(each.mean, each.n), span(each.iqm, each.n)) for name, each in found.items()]
    spread = ", with 95 % intervals" * any(each.n > LEAST_SEEDS for each in found.values())
    tables: list[Table] = [(f"Over seeds{spread}", ("runs", "seeds", "mean", "IQM"), [*means])]
    several = {name: scores for name, scores in groups.items() if len(scores) >= LEAST_SEEDS}
    if len(several) > 1:
        pairs = [(*pair, f"{p.value:.2f} [{p.low:.2f}, {p.high:.2f}]") for *pair, p in improvements(several)]
        at = thresholds_of(several.values(), 5)
        profiles = {name: performance_profile(scores, at)[0] for name, scores in several.items()}
        shares = [(name, *(f"{share:.0%}" for share in profile)) for name, profile in profiles.items()]
        tables.append(("Probability of improvement", ("a run of", "over a run of", ""), [*pairs]))
        tables.append(("Share of runs above a return", ("runs", *map(number, at)), shares))
    return tables


def _by_configuration(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    """The evaluated runs by configuration, one for each seed, see `seeds_of`."""
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
    """By environment, the run with the highest final evaluation; environments with a single run are left out, and those
    with several seeds of a configuration, the highest of which is not the result."""
    best, over_seeds = {}, {group[0].env_id for group in _by_configuration(runs) if len(group) > 1}
    for env_id in dict.fromkeys(run.env_id for run in runs if run.env_id not in over_seeds):
        judged = [run for run in runs if run.env_id == env_id and run.evaluation is not None]
        if len(judged) > 1:
            best[env_id] = judged[0]
    return best


def differing_settings(cfgs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The settings in which configurations differ, by path, for each of them.

    Environments and algorithms are compared among all; other settings among the configurations of one environment, and
    those of the section `policy` among those of its algorithm, too. Settings that do not affect returns (the folder of
    a run, the frequency of logs) are not compared.
    """
    flat = [dict(_leaves({"seed": cfg.get("seed"), **settings_of(cfg)})) for cfg in cfgs]  # type: ignore[arg-type]
    kinds = [tuple(str(each.get(path)) for path in _KINDS) for each in flat]

    def differs(path: str, place: int) -> bool:
        level = 0 if path in _KINDS else 2 if path.startswith("policy.") else 1
        rivals = (each for each, kind in zip(flat, kinds, strict=True) if kind[:level] == kinds[place][:level])
        return any(path not in each or each[path] != flat[place][path] for each in rivals)

    return [{path: value for path, value in each.items() if differs(path, place)} for place, each in enumerate(flat)]


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
        {path: value for path, value in settings.items() if path != "env.env_id"},
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
        ended = status.state == "ended" and not status.reason.startswith("SIG")
        found: dict[str, Any] = {"stop_reason": status.reason if status.state == "ended" else status.state}
    except ConfigError:
        found, ended = {}, False
    try:
        metrics = read_metrics(run.metrics)
    except ConfigError:
        return {"unit": "env_step", **found}
    unit, episodes = clock_of(metrics) or "env_step", setting_at(cfg, "policy.eval.n_episode")
    last = {name: float(values[-1]) for name in metrics if len(values := series(metrics, name)[1])}
    found |= {"unit": unit, unit: int(last.get(unit, 0)), "wall_time": last.get("time/seconds")}
    if ended and EVAL_RETURN in last and isinstance(episodes, int):
        spread = last.get("eval/return_std", 0.0)
        found |= {"eval_return": last[EVAL_RETURN], "eval_std": spread, "n_eval_episodes": episodes}
    return found
