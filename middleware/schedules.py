"""How far schedules such as that of the learning rate are at a point of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minding.engine.annealing import rate_left
from minding.engine.chain.context import UNITS, LearningContext
from minding.engine.config.limits import run_length


def schedule_steps(cfg: Mapping[str, Any], begin: int = 0) -> int:
    """Steps of the clock over which schedules run: `policy.learn.anneal_steps`, or else all from `begin` to the end of
    the run."""
    steps: int | None = cfg["policy"]["learn"].get("anneal_steps")
    return max(run_length(cfg).steps - begin, 1) if steps is None else steps


class Schedule:
    """How far a run's schedules are.

    Args:
      cfg: the compiled configuration; what it says of the run's length may change.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg

    def progress(self, ctx: LearningContext) -> float:
        """The share of the schedules that is over; more than 1 behind their end."""
        begin = ctx.schedule_begin
        return (ctx.clock - begin) / schedule_steps(self._cfg, begin)


def rate_jump(saved: Mapping[str, Any], now: Mapping[str, Any], clock: int, begin: int = 0) -> str | None:
    """What a changed schedule does to the learning rate of a run that is resumed.

    Args:
      saved: the compiled configuration so far.
      now: the one from here on.
      clock: where the run is.
      begin: where its schedules began.
    Returns:
      A sentence with the old and the new rate; None if the schedule is the same or nothing is annealed.
    """
    # A policy of the user's own may have other settings, or none.
    before, after = (cfg["policy"].get("learn", {}) for cfg in (saved, now))
    if not (before.get("anneal_lr") and after.get("anneal_lr")) or schedule_steps(saved, begin) == schedule_steps(
        now, begin
    ):
        return None
    earlier, unit = schedule_steps(saved, begin), run_length(now).unit
    return (
        f"the learning rate goes from {_rate(saved, clock, begin):.3g} to {_rate(now, clock, begin):.3g} at {unit} "
        f"{clock}: its schedule has {schedule_steps(now, begin)} {UNITS[unit]} now, {earlier} before; "
        f"policy.learn.anneal_steps={earlier} keeps the earlier schedule"
    )


def _rate(cfg: Mapping[str, Any], clock: int, begin: int) -> float:
    learn = cfg["policy"]["learn"]
    progress = min((clock - begin) / schedule_steps(cfg, begin), 1.0)
    rate: float = learn["learning_rate"]
    return rate * rate_left(learn.get("anneal_kind", "linear"), progress, learn.get("anneal_points", ()))
