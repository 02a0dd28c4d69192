"""The figures in the summary of a finished run, and scores of board games with intervals."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from minding.engine.chain.context import UNITS
from minding.engine.config.options import setting_at
from minding.engine.run.aggregates import score_interval
from minding.engine.search.opponents import score_key

_COUNTS = ("env_step", "train_iter", "n_eval_episodes")
_NUMBERS = ("eval_return", "eval_std", "wall_time", "steps_per_second")
_MOST = 1 << 63
_JUDGED = {
    "action_distance": ("action distance", "{:.4g} to the held-out actions"),
    "other_actions": ("other actions", "{:.1%} of the held-out ones"),
    "td_error": ("TD error", "{:.4g} in held-out steps"),
    "first_value": ("first value", "{:.4g} in the first states of held-out episodes"),
    "fqe_value": ("FQE value", "{:.4g}, discounted, estimated from the data"),
}
"""Estimates of a policy from recorded data: name in the summary, and value."""


def wrong_figure(figures: Mapping[str, Any]) -> str:
    """The fault of the first invalid figure; empty if all are valid. Any figure may be missing."""
    for key in _COUNTS:
        value = figures.get(key, 0)
        if type(value) is not int or not 0 <= value < _MOST:
            return f"{key}={_short(value)}: expected an integer of 0 or more"
    for key in _NUMBERS:
        value = figures.get(key, 0.0)
        if type(value) not in (int, float) or (type(value) is int and abs(value) >= _MOST):
            return f"{key}={_short(value)}: expected a number"
    if figures.get("unit", "env_step") not in tuple(UNITS):
        return f"unit={_short(figures['unit'])}: expected one of {', '.join(UNITS)}"
    if not isinstance(figures.get("stop_reason", ""), str):
        return f"stop_reason={_short(figures['stop_reason'])}: expected a string"
    judged = figures.get("data_eval", {})
    if not isinstance(judged, Mapping) or any(type(value) not in (int, float) for value in judged.values()):
        return f"data_eval={_short(judged)}: expected numbers by name"
    missing = [key for key in ("eval_return", "eval_std") if figures.get("n_eval_episodes") and key not in figures]
    return f"n_eval_episodes={figures['n_eval_episodes']} without {missing[0]}" if missing else ""


def _short(value: object) -> str:
    return repr(value)[:80]


def judged_figures(values: Mapping[str, float]) -> dict[str, str]:
    """The estimates of a policy from recorded data (see `middleware.dataset_evaluator`), by readable names."""
    return {title: text.format(values[name]) for name, (title, text) in _JUDGED.items() if name in values}


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


def plays_all_sides(cfg: Mapping[str, Any]) -> bool:
    """Whether the policy plays all sides in its training environments, so that their returns say nothing."""
    return str(setting_at(cfg, "env.env_kwargs.opponent")).partition(":")[0] == "self"


def opponent_of(cfg: Mapping[str, Any]) -> str | None:
    """Whom the policy meets in the environments of its evaluations: as set, and in PettingZoo's games random play."""
    named = setting_at(cfg, "env.evaluator_kwargs.opponent") or setting_at(cfg, "env.env_kwargs.opponent")
    if named is None and str(setting_at(cfg, "env.env_id")).startswith("classic/"):
        named = "random"
    return named if isinstance(named, str) else None


def units_of(cfg: Mapping[str, Any]) -> dict[str, str]:
    """The units of a run's clocks, in words: a step of self-play is a ply."""
    return {**UNITS, "env_step": "plies"} if plays_itself(cfg) else dict(UNITS)


def opponents_of(cfg: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the opponents in a run's evaluations; empty without self-play."""
    policy: Any = cfg.get("policy") or {}
    evaluation = policy.get("eval") or {}
    return tuple(map(str, evaluation.get("opponents") or ())) if plays_itself(cfg) else ()


def final_scores(cfg: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Score]:
    """The scores of the final evaluation, by opponent; empty without one."""
    means, opponents = figures.get("eval_info"), opponents_of(cfg)
    games = int(figures.get("n_eval_episodes") or 0) // max(1, len(opponents))
    return mean_scores(opponents, means if isinstance(means, Mapping) else {}, games)


def mean_scores(opponents: tuple[str, ...], means: Mapping[str, Any], games: int) -> dict[str, Score]:
    """Scores by opponent."""
    scores = {}
    for opponent in opponents:
        value = means.get(score_key(opponent))
        if games and isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1:
            low, high = score_interval(np.asarray(value, np.float64), games)
            scores[opponent] = Score(float(value), float(low), float(high), games)
    return scores
