"""A picture of recorded data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.data.dataset import Dataset
from minding.engine.errors import MissingExtraError
from minding.engine.run.plotting import save_figure
from minding.engine.types import Array

_POINTS = 20_000
_BINS = 40


def plot_dataset(data: Dataset, path: Path) -> None:
    """Draws returns, lengths, actions, and coverage: the two directions in which observations vary most.

    Args:
      data: recorded data.
      path: of the picture; its extension selects the format.

    Raises:
      MissingExtraError: if matplotlib is not installed.
      OSError: it cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "a picture of data") from None
    figure = Figure(figsize=(10, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    returns, lengths, actions, coverage = figure.subplots(2, 2).flat
    env_id = data.about["env"]["env_id"]
    figure.suptitle(f"{env_id}: {len(data):,} steps of {len(data.end):,} episodes")
    _histogram(returns, data.returns(), "return of whole episodes")
    _histogram(lengths, np.diff(data.end, prepend=-1), "steps per episode")
    rows = np.sort(np.random.default_rng(0).permutation(len(data))[:_POINTS])
    _draw_actions(actions, data, rows)
    _draw_coverage(coverage, data, rows)
    save_figure(figure, path)


def _histogram(axes: Any, values: Array, label: str) -> None:
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    margin = max(0.5, 1e-6 * max(abs(low), abs(high)))
    # Of values that are all the same, one column.
    axes.hist(values, bins=_BINS) if high - low > margin / _BINS else axes.hist(
        values, bins=1, range=(low - margin, high + margin)
    )
    axes.set_xlabel(label)
    axes.set_ylabel("episodes")


def _draw_actions(axes: Any, data: Dataset, rows: Array) -> None:
    action = data.action[rows].reshape(len(rows), -1)
    for column in range(min(action.shape[1], 6)):
        if data.about["env"]["env_action"]["kind"] == "box":
            axes.hist(action[:, column], bins=_BINS, histtype="step", label=f"{column}")
        else:
            values, counts = np.unique(action[:, column], return_counts=True)
            axes.bar(values + 0.1 * column, counts, width=0.8, alpha=0.6, label=f"{column}")
    axes.set_xlabel("action")
    axes.set_ylabel("steps")
    if action.shape[1] > 1:
        axes.legend(title="number", fontsize="small")


def _draw_coverage(axes: Any, data: Dataset, rows: Array) -> None:
    parts = [values[rows].reshape(len(rows), -1).astype(np.float64) for values in data.obs.values() if values.ndim < 4]
    axes.set_title("coverage")
    if not parts:
        axes.set_xlabel("images are not drawn")
        return
    seen = np.concatenate(parts, axis=1)
    label = ("observation 0", "observation 1")
    if seen.shape[1] > 2:
        spread = seen.std(axis=0)
        seen = (seen - seen.mean(axis=0)) / np.where(spread > 0, spread, 1)
        _, _, directions = np.linalg.svd(seen, full_matrices=False)
        seen, label = seen @ directions[:2].T, ("first principal component", "second")
    horizontal, vertical = seen[:, 0], seen[:, 1] if seen.shape[1] > 1 else np.zeros(len(seen))
    axes.hexbin(horizontal, vertical, gridsize=_BINS, bins="log", mincnt=1)
    axes.set_xlabel(label[0])
    axes.set_ylabel(label[1])
