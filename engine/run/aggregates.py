"""Point estimates of an algorithm from a few runs, and their uncertainty.

After Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice",
https://arxiv.org/abs/2108.13264.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from minding.engine.errors import NonFiniteError, ShapeError
from minding.engine.types import Array

_DRAWS = 2000
_CHUNK = 1 << 22
"""Numbers that are drawn at a time."""
_PERCENTILES = (2.5, 97.5)
NORMAL_QUANTILE = 1.959964
"""Quantile 0.975 of the normal distribution, for two-sided intervals of 95 %."""
Statistic = Callable[[Array], Array]
"""Takes scores ``(..., n, M)`` with the runs on the second-last axis; returns ``(..., M)``."""


def mean(scores: Array) -> Array:
    """The mean over the runs, the second-last axis."""
    result: Array = scores.mean(axis=-2)
    return result


def interquartile_mean(scores: Array) -> Array:
    """The mean of the middle half of the runs, the second-last axis (Agarwal et al., 2021, section 4.3). The ``floor(n
    / 4)`` lowest and highest of n runs are left out, as in the paper's own program."""
    runs = scores.shape[-2]
    left_out = runs // 4
    result: Array = np.sort(scores, axis=-2)[..., left_out : runs - left_out, :].mean(axis=-2)
    return result


def bootstrap_interval(strata: Sequence[Array], statistic: Statistic) -> tuple[Array, Array]:
    """The 95 % percentile interval of a stratified bootstrap (Agarwal et al., 2021, section 4.1).

    Each draw takes n of the n runs of every task, with replacement, and computes the statistic of all of them. The
    draws are the same in each call.

    Args:
      strata: for each task the scores of its runs, float64 ``(n, M)``: M figures of each run, such as the points of a
        curve.

    Returns:
      Lower and upper ends, float64 ``(M,)``.
    """
    rng = np.random.default_rng(0)
    drawn = [rng.integers(len(scores), size=(_DRAWS, len(scores))) for scores in strata]
    step = max(1, _CHUNK // sum(scores.size for scores in strata))
    parts = [
        statistic(np.concatenate([scores[index[k : k + step]] for scores, index in zip(strata, drawn)], axis=1))
        for k in range(0, _DRAWS, step)
    ]
    low, high = np.percentile(np.concatenate(parts), _PERCENTILES, axis=0)
    return low, high


class Estimate(NamedTuple):
    """A figure with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """The aggregate score of the seeds of one configuration."""

    n: int
    mean: Estimate
    iqm: Estimate


def score_interval(score: Array, games: int) -> tuple[Array, Array]:
    """The 95 % interval of a mean score in [0, 1] over games (Wilson, 1927, https://doi.org/10.2307/2276774). A draw
    scores 0.5. The interval assumes wins and losses only; games with draws vary less, so it is somewhat wide for them.
    It stays within [0, 1] and has a width even if every game was won."""
    squared = NORMAL_QUANTILE * NORMAL_QUANTILE / games
    center = (score + squared / 2) / (1 + squared)
    half = NORMAL_QUANTILE / (1 + squared) * np.sqrt(score * (1 - score) / games + squared / (4 * games))
    return np.maximum(center - half, 0.0), np.minimum(center + half, 1.0)


def aggregate(scores: Sequence[float]) -> Aggregate:
    """Summarizes the scores of seeds, one per seed."""
    table = np.asarray(scores, np.float64).reshape(-1, 1)
    if not len(table):
        raise ShapeError("scores to summarize: expected at least one, got none; give the scores of finished runs")
    if not np.isfinite(table).all():
        raise NonFiniteError(f"scores to summarize: expected finite numbers, got {list(scores)}; leave such runs out")
    return Aggregate(len(table), estimate([table], mean), estimate([table], interquartile_mean))


def improvements(groups: Mapping[str, Sequence[float]]) -> list[tuple[str, str, Estimate]]:
    """For each two groups of scores, the probability that a run of the first scores higher than a run of the second.

    A tie counts half (Agarwal et al., 2021, section 4.3). The first of a pair is the one that comes first in `groups`.
    """

    def compared(first: Array, second: Array) -> Estimate:
        def higher(scores: Array) -> Array:
            one, other = scores[..., : len(first), None, :], scores[..., None, len(first) :, :]
            result: Array = ((one > other) + 0.5 * (one == other)).mean(axis=(-3, -2))
            return result

        return estimate([first, second], higher)

    tables = {name: np.asarray(scores, np.float64)[:, None] for name, scores in groups.items()}
    return [(one, other, compared(tables[one], tables[other])) for one, other in itertools.combinations(tables, 2)]


def thresholds_of(groups: Iterable[Sequence[float]], count: int) -> Array:
    """Scores at equal distances, from the lowest to just below the highest, at which profiles are compared."""
    scores = np.concatenate([*map(np.asarray, groups)])
    found: Array = np.linspace(scores.min(), scores.max(), count + 1)[:count]
    return found


def performance_profile(scores: Sequence[float], thresholds: Array) -> tuple[Array, Array, Array]:
    """The share of runs that score more than each of the thresholds, with the ends of its 95 % interval.

    See Agarwal et al. (2021), section 4.2.
    """
    above = (np.asarray(scores)[:, None] > thresholds).astype(np.float64)
    return mean(above), *bootstrap_interval([above], mean)


def estimate(strata: Sequence[Array], statistic: Statistic) -> Estimate:
    """A statistic of scores ``(n, 1)`` of each task, with its interval; see `bootstrap_interval`."""
    low, high = bootstrap_interval(strata, statistic)
    return Estimate(float(statistic(np.concatenate(strata))[0]), float(low[0]), float(high[0]))
