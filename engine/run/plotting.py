"""Pictures of learning curves and timelines, and curves as text."""

import io
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.chain.context import UNITS
from minding.engine.chain.trace import MAIN_LANE
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.engine.errors import ConfigError, printable
from minding.engine.files import replace
from minding.engine.process.packages import import_extra
from minding.engine.run.aggregates import performance_profile, thresholds_of
from minding.engine.run.curves import (
    COLLECT_RETURN,
    EVAL_RETURN,
    MEASURES,
    Curve,
    curves_of_run,
    final_evaluation,
    main_column,
    points_of,
    series,
)
from minding.engine.run.metrics import clock_of
from minding.engine.run.run_summary import plays_itself
from minding.engine.types import Array

_COLUMNS = 1000
"""Columns of a picture that can be told apart: a longer series is drawn by four points of each."""
DRAWN = 2.0
"""Seconds of a timeline in its picture: with short iterations, more would be a blur."""
_VISIBLE = 0.004
"""Minimum width of a bar as a share of the timeline, so that short spans are visible."""
_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:red", "tab:brown", "tab:olive", "tab:cyan")
_LEAST_SPAN = 0.1
"""Minimum height of the axis of a metric, as a share of the largest value: noise then does not look like a cliff."""
_MARGIN = 0.03
"""Free part of the vertical axis above and below its values."""
_WAITING = {
    "collect lane": ("waits for a rollout", "lightgray"),
    "evaluate lane": ("waits for an evaluation", "darkgray"),
}
"""What the main lane does while another one works, and its color."""


def plot_curves(curves: Sequence[Curve], path: str | os.PathLike[str]) -> None:
    """Draws curves with their intervals into a picture, with a panel for each environment, unit and measure.

    Scores of self-play have one panel for all opponents, or with several configurations one for each opponent.
    Single seeds are faint lines, each with its own color if a panel has one curve; final evaluations are stars, and
    targets dashed lines. The axis of returns includes 0, and that of scores all scores. The file extension selects the
    format.
    """
    panels = _panels(curves)
    figure, panel_axes = new_figure(panels=max(1, len(panels)))
    if not panels:
        _describe(panel_axes[0], UNITS["env_step"], MEASURES[EVAL_RETURN][1])
    for shown, axes in zip(panels, panel_axes):
        colors = [_draw_curve(axes, curve, alone=len(shown) == 1) for curve in shown]
        for curve, color in zip(shown, colors, strict=True):
            if curve.finals and math.isfinite(curve.final_step):
                _draw_final(axes, curve.final_step, math.fsum(curve.finals) / len(curve.finals), color)
        _draw_targets(axes, [curve.target for curve in shown])
        axes.set_title(_title(shown))
        _describe(axes, shown[0].counted, shown[0].measure)
    save_figure(figure, path)


def thinned(steps: Array, *values: Array, columns: int = _COLUMNS) -> tuple[Array, ...]:
    """A series, ascending `steps` ``(M,)`` and finite `values` ``(M,)`` each, of which the first decides, with as many
    points as a picture can show; it looks the same."""
    if len(steps) <= 4 * columns:
        return steps, *values
    share = (steps - steps[0]) / ((steps[-1] - steps[0]) or 1.0)
    begins = np.flatnonzero(np.diff((share * columns).astype(np.int64), prepend=-1))
    kept: set[int] = set()
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(steps)]):
        part = values[0][begin:end]
        kept |= {begin, begin + int(part.argmin()), begin + int(part.argmax()), end - 1}
    index = np.array(sorted(kept))
    return steps[index], *(each[index] for each in values)


def _panels(curves: Sequence[Curve]) -> list[list[Curve]]:
    labels: dict[str, set[str]] = {}
    for curve in curves:
        labels.setdefault(curve.env_id, set()).add(curve.label)
    panels: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        apart = curve.opponent if len(labels[curve.env_id]) > 1 else ""
        panels.setdefault((curve.env_id, curve.counted, curve.measure, apart), []).append(curve)
    return list(panels.values())


def _draw_curve(axes: Any, curve: Curve, alone: bool) -> Any:
    """Draws the mean, and for several seeds its interval and each seed, in its own color if the curve is alone; returns
    the color of the mean."""
    label = f"{curve.label} ({curve.kind}, {curve.seeds})"
    steps, middle, low, high = thinned(curve.steps, curve.mean, curve.low, curve.high)
    (line,) = axes.plot(steps, middle, linewidth=2, label=label, zorder=3)
    color = line.get_color()
    if curve.opponent and curve.n_runs == 1:
        # Evaluations are few, and each has its own interval.
        reach = np.maximum(0.0, [middle - low, high - middle])
        axes.errorbar(steps, middle, reach, fmt="o", color=color, markersize=4, capsize=3, linewidth=1)
    if curve.n_runs > 1:
        axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
        named = alone and 0 < len(curve.names) < len(_COLORS)
        for k, member in enumerate(curve.members):
            label = f"seed {curve.names[k]}" if named else _once(axes, "single seeds")
            own = _COLORS[1 + k] if named else color
            axes.plot(*thinned(*member), color=own, alpha=0.7 if named else 0.4, linewidth=0.8, label=label)
    return color


def _once(axes: Any, label: str) -> str:
    """The label of a thing that has one line in the legend, however many of it there are."""
    return "_" if label in axes.get_legend_handles_labels()[1] else label


def _draw_final(axes: Any, step: float, value: float, color: Any) -> None:
    label = _once(axes, "final evaluation (mean)")
    axes.plot([step], [value], "*", color=color, markersize=12, markeredgecolor="white", label=label, zorder=4)


def _draw_targets(axes: Any, targets: Iterable[float | None]) -> None:
    for target in dict.fromkeys(targets):
        if target is not None:
            axes.axhline(target, color="dimgray", linestyle="--", linewidth=1, label=f"target {target:g}", zorder=2)


def _title(curves: Sequence[Curve]) -> str:
    labels, opponents = {curve.label for curve in curves}, {curve.opponent for curve in curves}
    title = " on ".join(filter(None, (labels.pop() if len(labels) == 1 else "", curves[0].env_id)))
    return f"{title} against {opponents.pop()}" if len(opponents) == 1 and opponents != {""} else title


def picture_of(path: str | os.PathLike[str]) -> Path:
    """The file of a picture, without an ending a .png; refuses one that matplotlib cannot write."""
    figure, _ = new_figure()
    known = figure.canvas.get_supported_filetypes()
    file = Path(path) if Path(path).suffix else Path(f"{path}.png")
    if file.suffix[1:].lower() not in known:
        raise ConfigError(f"picture {str(path)!r}: expected a name that ends with one of .{', .'.join(sorted(known))}")
    return file


def plot_run(
    metrics: Mapping[str, Array],
    title: str,
    path: str | os.PathLike[str],
    *,
    target: float | None = None,
    final: tuple[float, float] | None = None,
) -> None:
    """Draws one run: the training return as a line and evaluations as points, or estimates from recorded data if there
    are neither."""
    figure, (axes,) = new_figure()
    if COLLECT_RETURN in metrics:
        axes.plot(*thinned(*series(metrics, COLLECT_RETURN)), label="training (mean of up to 100 episodes)", alpha=0.7)
    column = main_column(points_of(metrics))
    column = EVAL_RETURN if column in (None, COLLECT_RETURN) else column
    kind, measure = MEASURES[column]
    steps, values = series(metrics, column)
    # Without a point it has no entry in the legend.
    label = f"{kind} (mean)" if len(steps) else "_"
    (line,) = axes.plot(*thinned(steps, values), "o-", markersize=4, label=label)
    if final is not None:
        _draw_final(axes, *final, line.get_color())
    if column == EVAL_RETURN:
        _draw_targets(axes, [target])
    axes.set_title(title)
    _describe(axes, UNITS[clock_of(metrics) or "env_step"], measure)
    save_figure(figure, path)


def plot_of_run(cfg: Config, metrics: Mapping[str, Array], figures: Mapping[str, Any], path: str | Path) -> None:
    """Draws the curve of one run as `plot_run` does; of self-play, its scores as `plot_curves` does."""
    if plays_itself(cfg):
        plot_curves(curves_of_run(cfg, metrics, figures), path)
        return
    title = f"{cfg.policy.type} on {cfg.env.env_id}, seed {cfg.seed}"
    final = final_evaluation(figures, main_column(points_of(metrics)) or EVAL_RETURN)
    plot_run(metrics, title, path, target=setting_at(cfg, "run.target"), final=final)


def plot_profiles(panels: Mapping[str, Mapping[str, Sequence[float]]], path: str | os.PathLike[str]) -> None:
    """Draws the performance profiles of the configurations of each panel, with their 95 % intervals."""
    figure, panel_axes = new_figure(panels=len(panels))
    for (where, groups), axes in zip(panels.items(), panel_axes, strict=True):
        for label, scores in groups.items():
            at = thresholds_of(groups.values(), _COLUMNS // 4)
            share, low, high = performance_profile(scores, at)
            (line,) = axes.plot(at, share, label=f"{label} ({len(scores)} seeds)")
            axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set(
            title=where, xlabel=MEASURES[EVAL_RETURN][1], ylabel="share of runs above it", ylim=(-_MARGIN, 1 + _MARGIN)
        )
        axes.legend(fontsize=9)
    save_figure(figure, path)


def plot_importance(shares: Mapping[str, float], path: str | os.PathLike[str]) -> None:
    """Draws a bar for each setting: the share of the differences between trials that it explains."""
    figure, (axes,) = new_figure(height=1.0 + 0.35 * len(shares))
    names = list(shares)[::-1]
    axes.barh(names, [shares[name] for name in names])
    axes.set_xlabel("importance (share of the differences between trials)")
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="y")
    save_figure(figure, path)


def plot_metrics(
    runs: Mapping[str, Mapping[str, Array]], names: Sequence[str], path: str | os.PathLike[str], columns: int = 3
) -> None:
    """Draws a small panel for each metric, with a line for each run."""
    from_top = -(-len(names) // columns)
    figure, panels = new_figure(height=2.1, panels=from_top, columns=columns, width=9)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    clocks = dict.fromkeys(UNITS[clock_of(metrics) or "env_step"] for metrics in runs.values())
    figure.supxlabel(", ".join(clocks), fontsize=9)
    for name, axes in zip(names, panels, strict=False):
        for label, metrics in runs.items():
            axes.plot(*thinned(*series(metrics, name), columns=_COLUMNS // columns), linewidth=1.2, label=label)
        axes.set_title(name.partition("/")[2] or name, fontsize=10)
        axes.tick_params(labelsize=9)
        axes.locator_params(axis="both", nbins=5)
        low, high = axes.get_ylim()
        least = _LEAST_SPAN * max(abs(low), abs(high))
        if high - low < least:
            axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
        count_steps(axes)
    if len(runs) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    save_figure(figure, path)


def plot_trace(trace: Mapping[str, Any], path: str | os.PathLike[str], seconds: float | None = None) -> None:
    """Draws a timeline, one row per lane, from a file of `Task.write_trace`: by default all, or the last `seconds` up
    to the end of the lane that finishes first, not counting lanes that finish earlier than this before the main one."""
    save_figure(_time_line(trace["traceEvents"], seconds), path)


def _time_line(events: Sequence[Mapping[str, Any]], seconds: float | None) -> Any:
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"])
    last = {row: max((e["ts"] + e["dur"] for e in spans if e["tid"] == row), default=0.0) for row in lanes}
    end = max(last.values(), default=0.0)
    if seconds is not None:
        # The evaluator may have worked long before, and may finish long after the others.
        until = min((last[row] for row, name in lanes.items() if name == MAIN_LANE), default=end)
        end = min((each for each in last.values() if each >= until - 1e6 * seconds), default=0.0)
    begin = 0.0 if seconds is None else max(0.0, end - 1e6 * seconds)
    colors = dict(zip(dict.fromkeys(span["name"] for span in spans), itertools.cycle(_COLORS), strict=False))
    spans = [span for span in spans if span["ts"] < end and span["ts"] + span["dur"] >= begin]
    figure, (axes,) = new_figure(height=0.9 + 0.45 * len(lanes))
    axes.grid(visible=False)
    bars = {row: _bars([span for span in spans if span["tid"] == row], begin, end) for row in lanes}
    for name in dict.fromkeys(span["name"] for span in spans):
        label, color = _WAITING.get(name, (name, colors[name]))
        for row in lanes:
            shown = [bar for of, bar in bars[row] if of == name]
            axes.broken_barh(shown, (row - 0.4, 0.8), linewidth=0, facecolor=color)
        axes.plot([], [], linewidth=6, label=label, color=color)
    axes.set_yticks(list(lanes), list(lanes.values()))
    # A row is as high without a bar, and the first is on top.
    axes.set_ylim(max(lanes, default=0) + 0.5, min(lanes, default=0) - 0.5)
    axes.set_xlim(0, max(left + width for lane in bars.values() for _, (left, width) in lane) if spans else 1.0)
    axes.set_xlabel("seconds")
    if spans:
        axes.legend(fontsize="small", ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return figure


def _bars(spans: Sequence[Mapping[str, Any]], begin: float, end: float) -> list[tuple[str, tuple[float, float]]]:
    """Name, left edge and width in seconds of each bar of a lane, whose spans do not overlap. Short spans are drawn
    wide enough to be visible if there is room for all; the following bar then starts later."""
    least = (end - begin) * min(_VISIBLE, 0.5 / max(1, len(spans)))
    bars, left = [], begin
    for span in spans:
        left = max(left, span["ts"])
        right = max(min(span["ts"] + span["dur"], end), left + least)
        bars.append((span["name"], ((left - begin) / 1e6, (right - left) / 1e6)))
        left = right
    return bars


def new_figure(height: float = 4.5, panels: int = 1, columns: int = 1, width: float = 7) -> tuple[Any, list[Any]]:
    """A figure in the style of all pictures: its panels have a faint grid, and no line above and on the right."""
    import_extra("matplotlib.figure", "plot", "drawing a learning curve")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * panels), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = [figure.add_subplot(panels, columns, number + 1) for number in range(panels * columns)]
    for axes in all_axes:
        styled(axes)
    return figure, all_axes


def styled(axes: Any) -> Any:
    """Gives axes the style of `new_figure`."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)
    return axes


def include(axes: Any, *values: float) -> None:
    """Widens the vertical axis until it has these values: cut off, differences of noise would look like cliffs."""
    low, high = axes.get_ylim()
    low, high = min(low, *values), max(high, *values)
    axes.set_ylim(low - _MARGIN * (high - low), high + _MARGIN * (high - low))


def _describe(axes: Any, counted: str, measure: str) -> None:
    axes.set_xlabel(counted)
    axes.set_ylabel(measure)
    count_steps(axes)
    include(axes, *((0.0, 1.0) if measure.endswith("score") else (0.0,)))
    if axes.get_legend_handles_labels()[0]:
        # Below the axes, where it covers no part of a curve.
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)


def count_steps(axes: Any) -> None:
    from matplotlib.ticker import EngFormatter

    # Training began at step 0, even if the first measurement came later.
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes a picture atomically: if that fails, an earlier picture stays."""
    path = picture_of(path)
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # Names of runs and environments may be from anybody; a $ in them begins no formula.
        if text.get_text():
            text.set_text(printable(text.get_text(), lines=True))
            text.set_parse_math(False)
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower())
    replace(path, picture.getvalue(), make=True)


def terminal_curve(
    xs: Sequence[float] | Array, ys: Sequence[float] | Array, unit: str = "env steps", width: int = 60, height: int = 10
) -> str:
    """Draws a curve with characters."""
    points = [(x, y) for x, y in zip(xs, ys) if math.isfinite(x) and math.isfinite(y)]
    if not points:
        return "(no returns yet)"
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    bottom, top = min(y for _, y in points), max(y for _, y in points)
    cells = [[" "] * width for _ in range(height)]
    for x, y in points:
        column = round((x - left) / ((right - left) or 1) * (width - 1))
        row = round((top - y) / ((top - bottom) or 1) * (height - 1))
        cells[row][column] = "•"
    labels = {0: f"{top:.4g}", height - 1: f"{bottom:.4g}"}
    margin = max(map(len, labels.values()))
    lines = [f"{labels.get(row, ''):>{margin}} ┤{''.join(line).rstrip()}" for row, line in enumerate(cells)]
    first, last = f"{left:,.0f}", f"{right:,.0f} {unit}"
    axis = f"{'':>{margin}} └{'─' * width}"
    return "\n".join([*lines, axis, f"{'':>{margin + 2}}{first}{last:>{max(width - len(first), len(last) + 1)}}"])
