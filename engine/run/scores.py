"""Scores of agents of board games against their opponents, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from minding.engine.chain.context import UNITS
from minding.engine.run.aggregates import score_interval
from minding.engine.search.opponents import score_key


class Score(NamedTuple):
    """A mean score with the ends of its 95 % interval, and its number of games."""

    value: float
    low: float
    high: float
    games: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}], 95 % interval of {self.games:,} games"


def plays_itself(cfg: Mapping[str, Any]) -> bool:
    """Whether a run learns from games against itself, so that its evaluations are games against opponents."""
    return bool(cfg.get("chain") == "self_play")


def units_of(cfg: Mapping[str, Any]) -> dict[str, str]:
    """The units of a run's clocks, in words: a step of self-play is a ply."""
    return {**UNITS, "env_step": "plies"} if plays_itself(cfg) else dict(UNITS)


def opponents_of(cfg: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the opponents in a run's evaluations; empty without self-play."""
    policy: Any = cfg.get("policy") or {}
    evaluation = policy.get("eval") or {}
    return tuple(map(str, evaluation.get("opponents") or ())) if plays_itself(cfg) else ()


def final_scores(cfg: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Score]:
    """The scores of the final evaluation, by opponent; empty without one.

    Args:
      cfg: the configuration of the run.
      figures: result of `RunDir.figures`.
    """
    told, opponents = figures.get("eval_info"), opponents_of(cfg)
    games = int(figures.get("n_eval_episodes") or 0) // max(1, len(opponents))
    return mean_scores(opponents, told if isinstance(told, Mapping) else {}, games)


def mean_scores(opponents: tuple[str, ...], means: Mapping[str, Any], games: int) -> dict[str, Score]:
    """Scores by opponent.

    Args:
      opponents: names of the opponents.
      means: mean scores by `score_key`.
      games: number of games against each opponent.
    """
    scores = {}
    for opponent in opponents:
        value = means.get(score_key(opponent))
        if games and isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1:
            low, high = score_interval(np.asarray(value, np.float64), games)
            scores[opponent] = Score(float(value), float(low), float(high), games)
    return scores
