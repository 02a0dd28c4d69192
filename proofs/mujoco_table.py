"""MuJoCo: what the queue has measured beside published scores, as tables and as a grid of learning curves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from minding.configs import load_preset
from minding.engine.chain.context import UNITS
from minding.engine.run import plotting
from minding.engine.run.aggregates import aggregate, estimate, interquartile_mean
from minding.engine.run.curves import EVAL_RETURN, MEASURES, Curve, mean_curve
from minding.engine.types import Array
from proofs.queue import QUEUE, STEPS
from proofs.runs import Record, Results

PUBLISHED = "mujoco"
"""Name of the published scores in ``published.json``: by source, ``[mean, deviation]`` or ``[mean]`` of a preset."""
REFERENCE = "Tianshou"
"""The source of published scores that count as 1 where scores of several environments are put together."""
NOT_MEASURED = "not measured"


def mujoco_table(results: Results) -> str:
    """One row per preset of the queue: scores over seeds, in both definitions, beside the published ones.

    Returns:
      The table, then what each column of published scores is.
    """
    sources = (results.single("published") or {}).get(PUBLISHED, {})
    head = ["algorithm", "environment", "seeds", "mean", "IQM", "95 % interval of the IQM", "best", *sources]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
    for preset in presets():
        cfg = load_preset(preset)
        cells = [cfg.policy.type.upper(), cfg.env.env_id, *_measured(whole_runs(results, preset))]
        cells += [_published(source["scores"].get(preset, ())) for source in sources.values()]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {name}: {source['note']} [Source]({source['source']})." for name, source in sources.items()]
    return "\n".join([*lines, "", *notes, ""])


def aggregate_table(results: Results) -> str:
    """One row per algorithm: mean and IQM over runs of all environments, in units of the published means."""
    scores = (results.single("published") or {}).get(PUBLISHED, {}).get(REFERENCE, {}).get("scores", {})
    strata: dict[str, list[Array]] = {}
    for preset in presets():
        algorithm, runs = load_preset(preset).policy.type.upper(), whole_runs(results, preset)
        strata.setdefault(algorithm, [])
        if runs and preset in scores:
            strata[algorithm].append(np.array([[run["eval_mean"] / scores[preset][0]] for run in runs]))
    lines = [f"| algorithm | environments | runs | mean of score / {REFERENCE}'s | IQM | 95 % interval of the IQM |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for algorithm, tasks in strata.items():
        runs = sum(map(len, tasks))
        cells = [algorithm, f"{len(tasks)}", f"{runs}", NOT_MEASURED, "", ""]
        if tasks:
            found = estimate(tasks, interquartile_mean)
            # With one run of each environment, all draws are the same.
            interval = f"{found.low:.2f} to {found.high:.2f}" if max(map(len, tasks)) > 1 else ""
            cells[3:] = [f"{np.concatenate(tasks).mean():.2f}", f"{found.value:.2f}", interval]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def replaced_table(results: Results) -> str:
    """Final scores of runs that were made again with the same settings, by seed: the row before, and the newest."""
    lines = ["| environment | seeds | centred | zero kept |", "|---|---|---|---|"]
    for preset in presets():
        newest = {row["seed"]: row for row in whole_runs(results, preset)}
        before = {
            row["seed"]: row
            for row in results.lines("learning")
            if row["preset"] == preset and (now := newest.get(row["seed"])) and row is not now
            if row["settings_hash"] == now["settings_hash"]
        }
        seeds = sorted(before)
        sides = [", ".join(f"{side[seed]['eval_mean']:,.0f}" for seed in seeds) for side in (before, newest)]
        if seeds:
            lines.append(f"| {load_preset(preset).env.env_id} | {', '.join(map(str, seeds))} | {' | '.join(sides)} |")
    return "\n".join([*lines, ""])


def draw_grid(results: Results) -> None:
    """Draws ``images/mujoco.png``: a row per algorithm, a column per environment.

    An algorithm has a row once a run of it is whole.
    """
    if not (results.docs / "images").is_dir():
        return
    cells = {}
    for preset in presets():
        cfg, curves = load_preset(preset), [record["curve"] for record in whole_runs(results, preset)]
        runs = [(np.array(each["env_step"]), np.array(each["eval_return"])) for each in curves]
        cells[cfg.policy.type.upper(), cfg.env.env_id] = mean_curve(preset, runs) if runs else None
    begun = {algorithm for (algorithm, _), curve in cells.items() if curve}
    cells = {pair: curve for pair, curve in cells.items() if pair[0] in begun}
    if not cells:
        return
    plot_grid(cells, results.docs / "images" / "mujoco.png")


def plot_grid(cells: Mapping[tuple[str, str], Curve | None], path: Path) -> None:
    """Draws a small panel for each pair of a row and a column."""
    rows, columns = (list(dict.fromkeys(pair[k] for pair in cells)) for k in (0, 1))
    figure, panels = plotting.new_figure(height=1.9, panels=len(rows), columns=len(columns), width=2.5 * len(columns))
    figure.supxlabel(UNITS["env_step"], fontsize=9)
    figure.supylabel(MEASURES[EVAL_RETURN][1], fontsize=9)
    for (row, column), axes in zip(itertools.product(rows, columns), panels, strict=True):
        axes.tick_params(labelsize=8)
        curve = cells.get((row, column))
        axes.set_title(f"{row} on {column}" + (f", n = {curve.n_runs}" if curve else ""), fontsize=9)
        if curve is None:
            axes.text(0.5, 0.5, "not measured", fontsize=9, ha="center", transform=axes.transAxes)
            axes.set(xticks=[], yticks=[])
            continue
        axes.plot(curve.steps, curve.mean, linewidth=1.5)
        if curve.n_runs > 1:
            axes.fill_between(curve.steps, curve.low, curve.high, alpha=0.2, linewidth=0)
        plotting.count_steps(axes)
        plotting.include(axes, 0.0)
    plotting.save_figure(figure, path)


def presets() -> list[str]:
    """Those of the queue, each once."""
    return list(dict.fromkeys(each.preset for each in QUEUE))


def whole_runs(results: Results, preset: str) -> list[Record]:
    """The newest row of each seed that is of a whole run and says its best evaluation."""
    return [row for row in results.of("learning", preset) if row["env_step"] >= STEPS and "best" in row]


def best_of_means(records: Sequence[Record]) -> tuple[float, float]:
    """The highest mean over seeds of the evaluations on the way, and the deviation over seeds at that step."""
    curves = [dict(zip(record["curve"]["env_step"], record["curve"]["eval_return"])) for record in records]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    returns = np.array([[curve[step] for step in common] for curve in curves])
    best = int(returns.mean(axis=0).argmax())
    return float(returns[:, best].mean()), float(returns[:, best].std())


def _measured(whole: Sequence[Record]) -> list[str]:
    """Seeds, mean, IQM, interval, best."""
    if not whole:
        return ["0", NOT_MEASURED, "", "", ""]
    found = aggregate([record["eval_mean"] for record in whole])
    interval = f"{found.iqm.low:,.0f} to {found.iqm.high:,.0f}" if found.n > 1 else ""
    mean, deviation = best_of_means(whole)
    best = f"{mean:,.0f} ± {deviation:,.0f}" if found.n > 1 else f"{mean:,.0f}"
    return [str(found.n), f"{found.mean.value:,.0f}", f"{found.iqm.value:,.0f}", interval, best]


def _published(score: Sequence[float]) -> str:
    return " ± ".join(f"{value:,.0f}" for value in score)
