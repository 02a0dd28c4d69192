"""The shapes of schedules: what share of a value remains at each point of the run."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.config.named import is_named, load_code
from minding.engine.errors import ConfigError

SHAPES = ("linear", "exp", "constant", "piecewise")
_TIME_CONSTANTS = 5.0
"""Exponent at the end of an exponential schedule of a learning rate."""
Points = Sequence[Sequence[float]]
"""Pairs of an elapsed share of the schedule and the remaining share of the value."""


def left(shape: str, share: float, points: Points = (), key: str = "policy.learn.anneal_kind") -> float:
    """The remaining share of the way from a start value to an end value.

    linear     max(0, 1 - x)
    exp        exp(-x)
    constant   1
    piecewise  straight lines from (0, 1) through the points, level after the last; a point at 0 replaces (0, 1)
    """
    if is_named(shape):
        value: Any = load_code(shape, key)(share)
        value = value.item() if isinstance(value, np.generic) else value
        if not _is_number(value):
            raise ConfigError(f"{key}={shape!r} returned {value!r} for {share}: expected a number of 0 or more")
        return float(value)
    if shape == "linear":
        return max(0.0, 1.0 - share)
    if shape == "exp":
        return math.exp(-share)
    if shape == "constant":
        return 1.0
    table = np.asarray(points if points[0][0] == 0 else [(0.0, 1.0), *points], np.float64)
    return float(np.interp(share, table[:, 0], table[:, 1]))


def rate_left(kind: str, progress: float, points: Points = ()) -> float:
    """The factor of a learning rate after this share of its schedule, in [0, 1]; 'exp' ends at 0.007."""
    return left(kind, _TIME_CONSTANTS * progress if kind == "exp" else progress, points)


def check_points(shape: str, points: object, path: str) -> None:
    """Refuses points that do not form a schedule, and points for a shape that does not use them."""
    if shape != "piecewise":
        if points:
            raise ConfigError(f"{path}={points!r} has no effect on a schedule of kind {shape!r}: use 'piecewise'")
        return
    pairs = points if isinstance(points, list) else []
    numbers = all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair)) for pair in pairs)
    if not pairs or not numbers or any(a[0] >= b[0] for a, b in itertools.pairwise(pairs)):
        raise ConfigError(
            f"{path}={points!r}: expected pairs of an increasing share of the schedule and the remaining share there, "
            "such as [[0, 1], [0.5, 0.2], [1, 0]]"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
