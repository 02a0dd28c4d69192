"""Pictures of recorded data."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.data.dataset import Dataset
from minding.engine.process.packages import import_extra
from minding.engine.run.plotting import save_figure, styled
from minding.engine.types import Array

_POINTS = 20_000
"""Most steps whose actions and observations are drawn; if there are more, this many are chosen."""
_BINS = 40
_FRAMES = 6


def plot_dataset(data: Dataset, path: Path) -> None:
    """Draws returns, lengths, actions, and coverage: observations along the two directions in which they vary most.
    Of image observations, a few images are shown."""
    save_figure(draw_dataset(data), path)


def draw_dataset(data: Dataset) -> Any:
    """The picture, a matplotlib figure."""
    import_extra("matplotlib.figure", "plot", "a picture of data")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    images = {name: values for name, values in data.obs.items() if _is_image(values)}
    vectors = [values for name, values in data.obs.items() if name not in images]
    # Each image observation has its own row, unless there is room beside the other plots.
    below = list(images) if vectors else list(images)[1:]
    figure = Figure(figsize=(10, 7 + 2 * len(below)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2 + len(below), 2, height_ratios=[3.5, 3.5, *[2] * len(below)])
    returns, lengths, actions, coverage = (styled(figure.add_subplot(grid[at // 2, at % 2])) for at in range(4))
    steps, episodes = len(data), len(data.end)
    about = f"{steps:,} step{'s' * (steps != 1)} of {episodes:,} episode{'s' * (episodes != 1)}"
    figure.suptitle(f"{data.about['env']['env_id']}: {about}")
    _histogram(returns, data.returns(), "return of complete episodes", "episodes", absent="no complete episode")
    _histogram(lengths, np.diff(data.end, prepend=-1), "steps per episode", "episodes")
    rows = np.sort(np.random.default_rng(0).permutation(steps)[:_POINTS])
    count = "steps" if len(rows) == steps else f"steps (of {len(rows):,} drawn)"
    _draw_actions(actions, data, rows, count)
    if vectors:
        seen = np.concatenate([values[rows].reshape(len(rows), -1).astype(np.float64) for values in vectors], axis=1)
        _draw_coverage(coverage, seen, count)
    places = [*([] if vectors else [coverage]), *(figure.add_subplot(grid[2 + at, :]) for at in range(len(below)))]
    for axes, (name, values) in zip(places, images.items(), strict=True):
        _draw_frames(axes, values, name, columns=_FRAMES // 2 if axes is coverage else _FRAMES)
    return figure


def _is_image(values: Array) -> bool:
    return values.ndim > 3 or (values.ndim == 3 and values.dtype == np.uint8)


def _histogram(axes: Any, values: Array, name: str, count: str, absent: str = "") -> None:
    """Draws how often each value occurs; whole numbers have their own columns, or share them if there are many."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=name, ylabel=count)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if not len(values):
        axes.text(0.5, 0.5, absent, ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    low, high = float(values.min()), float(values.max())
    if bool((values == np.round(values)).all()) and high - low < 2.0**53:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        edges = _whole_edges(low, high)
    else:
        margin = max(0.5, 1e-6 * max(abs(low), abs(high)))
        # Values that are all the same have one column.
        alike = high - low <= margin / _BINS
        edges = np.array([low - margin, high + margin]) if alike else np.linspace(low, high, _BINS + 1)
    axes.hist(values, bins=edges)
    if low == high:
        margin = 2.0 * (edges[1] - edges[0])
        axes.set_xlim(low - margin, low + margin)
        axes.set_xticks([low], [f"{low:,.6g}"])


def _whole_edges(low: float, high: float) -> Array:
    """The edges of columns for whole numbers: one for each, or for equally many."""
    width = math.ceil((high - low + 1) / _BINS)
    return low - 0.5 + width * np.arange(math.ceil((high - low + 1) / width) + 1)


def _draw_actions(axes: Any, data: Dataset, rows: Array, steps: str) -> None:
    """Draws the histogram of an action or, as rows of colors, of each of its components. Of rows of choices and
    numbers, only the choices are drawn."""
    space = data.about["env"]["env_action"]
    action = data.action[rows].reshape(len(rows), -1)
    if space["kind"] == "box":
        if action.shape[1] == 1:
            _histogram(axes, action[:, 0], "action", steps)
        else:
            _draw_table(axes, _shares(action, space), np.linspace(0, 1, _BINS + 1), steps)
            axes.set_xlabel("action, as a share of its range")
        return
    counts = [space["n"]] if space["kind"] == "discrete" else np.ravel(space["nvec"]).tolist()
    if len(counts) == 1:
        seen = np.unique(data.action.reshape(len(data), -1)[:, 0])
        _histogram(axes, action[:, 0], f"action: {len(seen):,} of {counts[0]:,} were recorded", steps)
        return
    starts = np.broadcast_to(np.ravel(space.get("start", 0)), len(counts)).tolist()
    most = max(start + count for start, count in zip(starts, counts, strict=True)) - 1
    _draw_table(axes, action[:, : len(counts)], _whole_edges(min(starts), most), steps)
    axes.set_xlabel("action")


def _shares(action: Array, space: Mapping[str, Any]) -> Array:
    """Components as shares of their ranges, bounded by the limits of the space or, without a limit, by the lowest or
    highest recorded number."""
    low, high = (
        np.broadcast_to(np.ravel(space[name]), action.shape[1:]).astype(np.float64) for name in ("low", "high")
    )
    low = np.where(np.isfinite(low), low, action.min(axis=0))
    high = np.where(np.isfinite(high), high, action.max(axis=0))
    shares: Array = (action - low) / np.where(high > low, high - low, 1.0)
    return shares


def _draw_table(axes: Any, action: Array, edges: Array, steps: str) -> None:
    """Draws the histogram of each component of an action as a row of colors."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    table = np.array([np.histogram(column, edges)[0] for column in action.T])
    shown = axes.imshow(
        np.where(table > 0, table, np.nan), aspect="auto", origin="lower", interpolation="none",
        extent=(edges[0], edges[-1], -0.5, len(table) - 0.5), norm=LogNorm(vmin=1, vmax=max(2, int(table.max()))),
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.colorbar(shown, ax=axes, label=steps)
    axes.set_ylabel("component of the action")


def _draw_coverage(axes: Any, seen: Array, steps: str) -> None:
    axes.set_title("coverage")
    if seen.shape[1] == 1:
        _histogram(axes, seen[:, 0], "observation", steps)
        return
    label = ("observation 0", "observation 1")
    if seen.shape[1] > 2:
        spread = seen.std(axis=0)
        seen = (seen - seen.mean(axis=0)) / np.where(spread > 0, spread, 1)
        _, directions = np.linalg.eigh(seen.T @ seen)
        seen, label = seen @ directions[:, :-3:-1], ("first principal component", "second principal component")
    drawn = axes.hexbin(seen[:, 0], seen[:, 1], gridsize=_BINS, bins="log", mincnt=1)
    axes.figure.colorbar(drawn, ax=axes, label=f"{steps} per cell")
    axes.set(xlabel=label[0], ylabel=label[1])


def _draw_frames(axes: Any, values: Array, name: str, columns: int) -> None:
    """Draws a few images in rows, from the first step to the last."""
    rows = np.unique(np.linspace(0, len(values) - 1, _FRAMES).astype(np.int64))
    frames = [_shown(values[row]) for row in rows]
    gap = max(1, frames[0].shape[1] // 20)
    framed = [np.pad(frame, ((gap, 0), (gap, 0), (0, 0)), constant_values=1.0) for frame in frames]
    framed += [np.ones_like(framed[0])] * (-len(framed) % columns)
    lines = [np.concatenate(framed[at : at + columns], axis=1) for at in range(0, len(framed), columns)]
    axes.imshow(np.concatenate(lines), interpolation="none")
    axes.set_title(f"observation {name}".strip())
    axes.set_xlabel(f"at the steps {', '.join(f'{row:,}' for row in rows.tolist())}")
    axes.set(xticks=[], yticks=[])


def _shown(image: Array) -> Array:
    """An image as (height, width, RGB) from 0 to 1; for a stack of images the last one."""
    image = np.asarray(image).reshape(-1, *image.shape[-2:]) if image.ndim > 3 else np.asarray(image)
    if image.ndim == 3 and image.shape[-1] in (1, 3, 4) and image.shape[0] not in (1, 3):
        image = np.moveaxis(image, -1, 0)
    if image.ndim == 3:
        image = image if len(image) == 3 else image[-1]
    scaled = image.astype(np.float64)
    if image.dtype == np.uint8:
        scaled /= 255
    else:
        scaled = (scaled - scaled.min()) / (np.ptp(scaled) or 1.0)
    return np.moveaxis(scaled, 0, -1) if scaled.ndim == 3 else np.repeat(scaled[..., None], 3, axis=-1)
