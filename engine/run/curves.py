"""Learning curves of run folders: finds the seeds of each configuration, and computes their mean with its interval."""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from minding.engine.chain.context import UNITS
from minding.engine.config.config import Config
from minding.engine.config.identity import changes
from minding.engine.config.options import plain, setting_at
from minding.engine.console import console_logger
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError
from minding.engine.run.aggregates import bootstrap_interval, mean, score_interval
from minding.engine.run.metrics import clock_of, read_metrics
from minding.engine.run.run_dir import RunDir, run_folders
from minding.engine.run.run_summary import final_scores, opponents_of, plays_all_sides, plays_itself
from minding.engine.search.opponents import score_key
from minding.engine.types import Array

T = TypeVar("T")

EVAL_RETURN = "eval/return_mean"
COLLECT_RETURN = "collect/return_mean"
MEASURES = {
    EVAL_RETURN: ("evaluation", "episode return"),
    COLLECT_RETURN: ("training", "episode return"),
    "eval/fqe_value": ("fitted Q evaluation", "value of first states, discounted"),
    "eval/action_distance": ("held-out episodes", "distance of actions from the recorded ones"),
    "eval/other_actions": ("held-out episodes", "share of actions that differ from the recorded ones"),
}
"""The measures that a curve may show, by column of metrics.csv: kind of measurement and measured quantity. Estimates
from recorded data are shown only if no episode was played."""
_GRID_POINTS = 200
_SAME_RUN = ("log_freq", "loggers", "profile", "trace", "ckpt_freq", "final_episodes", "out_dir", "target", "video")
"""Settings of the section `run` that do not affect returns."""
LEAST_SEEDS = 3
"""Minimum number of seeds for an interval."""
_MOST_SETTINGS = 3
"""Maximum number of differing settings in a label."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """Mean return, or an estimate from recorded data, over the steps of a run, with its 95 % interval over seeds.

    Attributes:
      steps: float64 ``(M,)``, counted in `unit`.
      mean, low, high: float64 ``(M,)``; with one run all three are that run.
    """

    label: str
    steps: Array
    mean: Array
    low: Array
    high: Array
    n_runs: int
    env_id: str = ""
    column: str = EVAL_RETURN
    unit: str = "env_step"
    finals: tuple[float, ...] = ()
    final_step: float = math.nan
    members: tuple[tuple[Array, Array], ...] = ()
    names: tuple[str, ...] = ()
    target: float | None = None
    games: int = 0
    opponent: str = ""

    @property
    def kind(self) -> str:
        """The kind of measurement, such as ``"evaluation"`` or ``"training"``."""
        if self.games:
            return f"against {self.opponent}" if self.opponent else "over all opponents"
        return MEASURES[self.column][0]

    @property
    def measure(self) -> str:
        """The measured quantity, such as ``"episode return"``."""
        if self.games:
            return "score" if self.opponent else "mean score"
        return MEASURES[self.column][1]

    @property
    def counted(self) -> str:
        """The unit of `steps`, in words."""
        return "plies" if self.games else UNITS[self.unit]

    @property
    def seeds(self) -> str:
        """The meaning of the curve and of the band around it, in words. For two seeds the band spans both."""
        if self.opponent:
            runs = f"mean of {self.n_runs} seeds, " if self.n_runs > 1 else ""
            return f"{runs}95 % interval, {self.games} games{' each' if runs else ''}"
        if self.n_runs == 1:
            return "1 seed"
        # Over three seeds, a bootstrap interval is their range.
        band = "and both" if self.n_runs < LEAST_SEEDS else "range" if self.n_runs == LEAST_SEEDS else "95 % interval"
        return f"mean of {self.n_runs} seeds, {band}"


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run folder that can be plotted: its configuration, its points by `MEASURES`, and the unit of their steps."""

    path: Path
    cfg: Config
    points: dict[str, tuple[Array, Array]]
    unit: str
    figures: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of(self.cfg)


def settings_of(cfg: Config) -> dict[str, Any]:
    """The settings on which the returns of a run depend, except for the seed."""
    settings = {name: value for name, value in plain(cfg).items() if name not in ("seed", "exp_name")}
    if isinstance(settings.get("run"), dict):
        settings["run"] = {name: value for name, value in settings["run"].items() if name not in _SAME_RUN}
    return settings


def series(metrics: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    """Steps of the clock and finite values of one metric, in ascending order of steps."""
    clock = clock_of(metrics)
    if name not in metrics or clock is None:
        return np.empty(0), np.empty(0)
    written = np.isfinite(metrics[name]) & np.isfinite(metrics[clock])
    steps, values = metrics[clock][written], metrics[name][written]
    order = np.argsort(steps, kind="stable")
    return steps[order], values[order]


def main_column(*runs: Mapping[str, tuple[Array, Array]]) -> str | None:
    """The column that a curve of these runs shows: evaluations; with fewer than two evaluations the training returns;
    or estimates from recorded data. None if the runs have no column in common."""
    if all(len(run.get(EVAL_RETURN, ((),))[0]) > 1 for run in runs):
        return EVAL_RETURN
    if all(COLLECT_RETURN in run for run in runs):
        return COLLECT_RETURN
    if any(EVAL_RETURN in run for run in runs):
        return EVAL_RETURN
    return next((column for column in MEASURES if all(column in run for run in runs)), None)


def points_of(metrics: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Steps and values of each of `MEASURES` in the metrics."""
    found = {column: series(metrics, column) for column in MEASURES}
    return {column: points for column, points in found.items() if len(points[0])}


def points_of_run(cfg: Config, metrics: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Steps and values, by column, of all measures that a curve of a run may show. With self-play these are
    evaluations, since games against itself do not show how well an agent plays."""
    points = points_of(metrics)
    if plays_itself(cfg) or plays_all_sides(cfg):
        points.pop(COLLECT_RETURN, None)
    if plays_itself(cfg):
        scores = {f"eval/{score_key(opponent)}" for opponent in opponents_of(cfg)}
        points.update({column: found for column in scores if len((found := series(metrics, column))[0])})
    return points


def mean_curve(
    label: str, runs: Sequence[tuple[Array, Array]], *, env_id: str = "", column: str = EVAL_RETURN
) -> Curve:
    """Averages the curves of several seeds on the range of steps that all of them have."""
    if len(runs) == 1:
        ((steps, values),) = runs
        return Curve(label, steps, values, values, values, 1, env_id, column, members=tuple(runs))
    first, last = max(steps[0] for steps, _ in runs), min(steps[-1] for steps, _ in runs)
    grid = np.linspace(first, max(first, last), _GRID_POINTS)
    table = np.stack([np.interp(grid, steps, values) for steps, values in runs])
    low, high = bootstrap_interval([table], mean)
    return Curve(label, grid, mean(table), low, high, len(runs), env_id, column, members=tuple(runs))


def read_each(paths: Iterable[str | os.PathLike[str]], read: Callable[[Path], T], what: str) -> list[T]:
    """The results of `read` for the run folders, and for each run in a folder of seeds, once for each. A folder that
    cannot be read is left out with a warning; `what` says what it should hold."""
    runs, errors = [], []
    found = {path.absolute(): path for path in itertools.chain.from_iterable(map(run_folders, paths))}
    for path in found.values():
        try:
            runs.append(read(path))
        except ConfigError as error:
            errors.append(error)
    if not runs and len(errors) == 1:
        raise errors[0]
    for each in errors:
        console_logger().warning("left out: %s", each)
    if not runs:
        raise ConfigError(f"none of these {len(errors)} folders holds {what}")
    return runs


def learning_curves(paths: Iterable[str | os.PathLike[str]], labels: Sequence[str] = ()) -> list[Curve]:
    """One curve for each configuration among the runs, over its seeds, by environment; with self-play also one for each
    opponent.

    Runs belong together if the seed is the only difference that affects returns. A folder of seeds represents the runs
    in it. A folder that cannot be read is left out with a warning; so is the earlier of two runs with the same
    configuration and seed.
    """
    runs = read_each(paths, _read_run, "a run with returns")
    groups = _groups(runs)
    own = _labels([group[0] for group in groups])
    if labels and len(labels) != len(groups):
        found = "; ".join(f"{label} ({len(group)} runs)" for label, group in zip(own, groups, strict=True))
        raise ConfigError(f"{len(labels)} labels for {len(groups)} curves: give one for each of {found}")
    curves = [
        curve
        for label, members in zip(labels or own, groups, strict=True)
        for curve in _curves_of(label, members, _shared_column(members[0], groups))
    ]
    return sorted(curves, key=lambda curve: curve.env_id)


def curves_of_run(cfg: Config, metrics: Mapping[str, Array], figures: Mapping[str, Any]) -> list[Curve]:
    """The curves of a single run; none before its first return."""
    run = _Run(Path(), cfg, points_of_run(cfg, metrics), clock_of(metrics) or "env_step", figures)
    return _curves_of(f"{cfg.policy.type}, seed {cfg.seed}", [run]) if run.points else []


def _read_run(path: Path) -> _Run:
    run_dir = RunDir.open(path)
    cfg = run_dir.read_config()
    metrics = read_metrics(run_dir.metrics)
    points = points_of_run(cfg, metrics)
    if not points:
        reason = unjudged(cfg) or "let the run continue until there are"
        raise ConfigError(f"{str(run_dir.metrics)!r} holds no returns yet: {reason}")
    return _Run(path, cfg, points, clock_of(metrics) or "env_step", run_dir.figures())


def unjudged(cfg: Mapping[str, Any]) -> str:
    """A sentence that nothing evaluates the policy of a run, and what would; empty if something does."""
    judges = (setting_at(cfg, path) for path in ("policy.other.holdout", "policy.eval.fqe"))
    if setting_at(cfg, "env.env_id") != RECORDED or any(judges):
        return ""
    return (
        "nothing judges the policy: train with policy.other.holdout=0.1, which holds episodes out to judge it, or with "
        "--env ID, where it plays"
    )


def _groups(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Groups the runs by configuration, in the order in which they were given; seeds within a group differ."""
    groups: list[dict[Any, _Run]] = []
    for run in runs:
        seed = str(run.cfg.get("seed"))
        same = next((group for group in groups if next(iter(group.values())).settings == run.settings), None)
        if same is None:
            groups.append({seed: run})
            continue
        if seed in same:
            earlier = same[seed].path
            console_logger().warning(
                "left out: %s: %s has the same settings and seed %s; of such runs the last one is drawn",
                earlier, run.path, seed,
            )  # fmt: skip
        same[seed] = run
    return [list(group.values()) for group in groups]


def _labels(firsts: Sequence[_Run]) -> list[str]:
    """For each group, its algorithm and the settings in which it differs from others on the same environment."""
    labels = []
    for run in firsts:
        name = str(run.cfg.policy.get("type"))
        rivals = [other for other in firsts if _kind_of(other) == _kind_of(run) and other is not run]
        paths = dict.fromkeys(change.path for other in rivals for change in changes(run.settings, other.settings))
        shown = [f"{path.rpartition('.')[2]}={setting_at(run.settings, path)}" for path in list(paths)[:_MOST_SETTINGS]]
        if len(paths) > _MOST_SETTINGS:
            shown = [str(run.path.name)]
        labels.append(", ".join([name, *shown]))
    return labels


def _kind_of(run: _Run) -> tuple[str, str]:
    return str(run.cfg.env.env_id), str(run.cfg.policy.get("type"))


def _shared_column(run: _Run, groups: Sequence[Sequence[_Run]]) -> str | None:
    """The column that all runs in the environment of `run` have, so that a panel shows one measure; None if none."""
    beside = [each.points for group in groups for each in group if each.cfg.env.env_id == run.cfg.env.env_id]
    column = main_column(*beside)
    return column if all(column in points for points in beside) else None


def _curves_of(label: str, runs: Sequence[_Run], column: str | None = None) -> list[Curve]:
    first = runs[0].cfg
    curve = _curve_of(label, runs, column)
    if not plays_itself(first):
        return [curve]
    # A script may compose its own evaluator.
    games = max(1, int(setting_at(first, "policy.eval.n_episode") or 1))
    columns = {opponent: f"eval/{score_key(opponent)}" for opponent in opponents_of(first)}
    known = {opponent: column for opponent, column in columns.items() if all(column in run.points for run in runs)}
    scores = [_score_curve(label, runs, opponent, column, games) for opponent, column in known.items()]
    return [dataclasses.replace(curve, games=games), *scores]


def _score_curve(label: str, runs: Sequence[_Run], opponent: str, column: str, games: int) -> Curve:
    """The scores against one opponent. Its interval is the wider of two: over the games of all runs together, and over
    the runs, which may differ more than their games."""
    curve = mean_curve(label, [run.points[column] for run in runs], env_id=str(runs[0].cfg.env.env_id), column=column)
    low, high = score_interval(np.clip(curve.mean, 0.0, 1.0), games * len(runs))
    scores = [(run.figures, score) for run in runs if (score := final_scores(run.cfg, run.figures).get(opponent))]
    steps = [final[0] for figures, _ in scores if (final := final_evaluation(figures)) is not None]
    return dataclasses.replace(
        curve,
        low=np.minimum(low, curve.low),
        high=np.maximum(high, curve.high),
        unit=runs[0].unit,
        finals=tuple(score.value for _, score in scores),
        final_step=float(np.mean(steps)) if steps else math.nan,
        games=games,
        opponent=opponent,
    )


def _curve_of(label: str, runs: Sequence[_Run], column: str | None) -> Curve:
    column = column or main_column(*(run.points for run in runs)) or next(iter(runs[0].points))
    runs = [run for run in runs if column in run.points]
    curve = mean_curve(label, [run.points[column] for run in runs], env_id=str(runs[0].cfg.env.env_id), column=column)
    found = [final for run in runs if (final := final_evaluation(run.figures, column)) is not None]
    targets = {setting_at(run.cfg, "run.target") for run in runs}
    return dataclasses.replace(
        curve,
        unit=runs[0].unit,
        names=tuple(str(run.cfg.get("seed")) for run in runs),
        finals=tuple(value for _, value in found),
        final_step=float(np.mean([step for step, _ in found])) if found else math.nan,
        target=targets.pop() if len(targets) == 1 and curve.measure == MEASURES[EVAL_RETURN][1] else None,
    )


def final_evaluation(figures: Mapping[str, Any], column: str = EVAL_RETURN) -> tuple[float, float] | None:
    """The clock and the result of a run's final evaluation, from `RunDir.figures`; None if there was none. `column` is
    one of `MEASURES`; for columns of returns, the result is the mean return."""
    step, value = figures.get(figures.get("unit", "env_step"), math.nan), figures.get("eval_return")
    if column not in (EVAL_RETURN, COLLECT_RETURN):
        judged = figures.get("data_eval")
        value = judged.get(column.partition("/")[2]) if isinstance(judged, Mapping) else None
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(step), float(value)
