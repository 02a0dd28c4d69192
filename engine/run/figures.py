"""The figures in the summary of a finished run: their names and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minding.engine.chain.context import UNITS

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
