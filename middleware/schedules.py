"""The progress of schedules, such as the learning rate's, at a point of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minding.engine.annealing import rate_left
from minding.engine.chain.context import UNITS
from minding.engine.config.limits import run_length
from minding.engine.types import Array


def schedule_steps(cfg: Mapping[str, Any]) -> int:
    """Steps of the clock over which schedules run: `policy.learn.anneal_steps`, or all to the end of the run."""
    steps: int | None = cfg["policy"]["learn"].get("anneal_steps")
    return max(run_length(cfg).steps - _begin(cfg), 1) if steps is None else steps


class Schedule:
    """The progress of a run's schedules.

    Args:
      cfg: the compiled configuration; its keys for the length of the run may change later.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg

    def progress(self, clock: int | Array) -> Any:
        """The fraction of the schedules that is over, of the clock's shape; more than 1 after their end."""
        return (clock - _begin(self._cfg)) / schedule_steps(self._cfg)


def rate_jump(saved: Mapping[str, Any], now: Mapping[str, Any], clock: int) -> str | None:
    """The change of the learning rate by a changed schedule in a resumed run.

    Args:
      saved: the compiled configuration of the run so far.
      now: the compiled configuration from here on.
      clock: the clock at which the run is resumed.
    Returns:
      A sentence with the old and the new rate; None if the schedule is the same or the rate is not annealed.
    """
    # A user's own policy may have other settings, or none.
    before, after = (cfg["policy"].get("learn", {}) for cfg in (saved, now))
    if not (before.get("anneal_lr") and after.get("anneal_lr")) or _span(saved) == _span(now):
        return None
    earlier, unit = schedule_steps(saved), run_length(now).unit
    keeps = f"policy.learn.anneal_steps={earlier} keeps the earlier schedule"
    return (
        f"the learning rate goes from {_rate(saved, clock):.3g} to {_rate(now, clock):.3g} at {unit} "
        f"{clock}: its schedule has {schedule_steps(now)} {UNITS[unit]} now, {earlier} before"
        f"{f'; {keeps}' if _begin(now) == _begin(saved) else ''}"
    )


def _begin(cfg: Mapping[str, Any]) -> int:
    begin: int = cfg["run"].get("schedule_begin", 0)
    return begin


def _span(cfg: Mapping[str, Any]) -> tuple[int, int]:
    return _begin(cfg), schedule_steps(cfg)


def _rate(cfg: Mapping[str, Any], clock: int) -> float:
    learn = cfg["policy"]["learn"]
    progress = min((clock - _begin(cfg)) / schedule_steps(cfg), 1.0)
    rate: float = learn["learning_rate"]
    return rate * rate_left(learn.get("anneal_kind", "linear"), progress, learn.get("anneal_points", ()))
