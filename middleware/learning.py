"""The learn call of a policy, and the progress of schedules, such as the learning rate's, at its place in the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.annealing import rate_left
from minding.engine.chain.context import UNITS, LearningContext
from minding.engine.config.config import run_length
from minding.engine.console import console_logger
from minding.engine.data.batch import IndexedBatch
from minding.engine.types import Array, LearnMode, LearnOutput
from minding.middleware.ctx_fields import metrics_in


def learn_from(ctx: LearningContext, policy: LearnMode, batch: IndexedBatch, schedule: Schedule) -> LearnOutput:
    """Performs the gradient steps of a batch; writes train_output and train_iter, and returns the policy's output."""
    lag = ctx.optional("policy_lag", dict)
    if lag is not None:
        batch = dataclasses.replace(batch, lag=lag["max"])
    output = policy.forward(batch, progress=schedule.progress(_places(ctx, len(batch.index))))
    ctx.train_output = {**metrics_in(ctx, "a trainer"), **output.metrics, "grad_steps": output.steps}
    ctx.train_iter += output.steps
    return output


def _places(ctx: LearningContext, steps: int) -> int | Array:
    """The clock at each of these gradient steps, for schedules. If the clock counts gradient steps, each step has its
    own value. Otherwise all steps have the clock at the beginning of the iteration, because the data were collected
    after it: the first iteration learns at the start of a schedule, and no iteration learns at its end."""
    if ctx.unit != "train_iter":
        return ctx.clock_begin
    return ctx.clock + np.arange(steps) if steps > 1 else ctx.clock


def schedule_steps(cfg: Mapping[str, Any]) -> int:
    """Steps of the clock over which schedules run: `policy.learn.anneal_steps`, or all to the end of the run."""
    steps: int | None = cfg["policy"]["learn"].get("anneal_steps")
    return max(run_length(cfg).steps - _begin(cfg), 1) if steps is None else steps


class Schedule:
    """The progress of a run's schedules."""

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg
        self._warned = False

    def progress(self, clock: int | Array) -> Any:
        """The fraction of the schedules that is over, of the clock's shape; more than 1 after their end. Warns once if
        the learning rate is 0 from there on."""
        # An agent that goes on learning has changed them.
        begin, steps = _span(self._cfg)
        last = int(clock[-1]) if isinstance(clock, np.ndarray) else clock
        if not self._warned and last >= begin + steps:
            self._warned = True
            self._warn_of_the_end(last)
        return (clock - begin) / steps

    def _warn_of_the_end(self, clock: int) -> None:
        unit, learn = run_length(self._cfg).unit, self._cfg["policy"]["learn"]
        if not learn.get("anneal_lr") or _rate(self._cfg, clock) > 0:
            return
        key = f"run.max_{unit}" if learn.get("anneal_steps") is None else "policy.learn.anneal_steps"
        console_logger().warning(
            "the learning rate is 0 from %s %d on, and nothing more is learned: its schedule ended after %d %s (%s); "
            "raise that, or end the run there, as termination_checker(cfg.run.max_%s) does",
            *(unit, clock, schedule_steps(self._cfg), UNITS[unit], key, unit),
        )


def last_rate(cfg: Mapping[str, Any], clock: int) -> float:
    """The share of the learning rate with which a run learned in the iteration that ended at `clock`."""
    learn, collect = cfg["policy"]["learn"], cfg["policy"].get("collect", {})
    if not learn.get("anneal_lr"):
        return 1.0
    taken = collect.get("n_sample", 1) if run_length(cfg).unit == "env_step" else 1
    return _rate(cfg, max(clock - taken, _begin(cfg))) / float(learn["learning_rate"])


def rate_jump(saved: Mapping[str, Any], now: Mapping[str, Any], clock: int) -> str | None:
    """The change of the learning rate by a changed schedule in a resumed run."""
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
