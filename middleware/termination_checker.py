"""Ends the run when its goal or its budget is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import Declaration, declare
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError, whole_number


class Finishable(Protocol):
    """The part of a task that this middleware uses."""

    finish: bool


@declare(optional=("env_step", "train_iter", "train_epoch", "eval_value"))
def termination_checker(
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
    max_train_epoch: int | None = None,
    *,
    stop_value: float | None = None,
    task: Finishable | None = None,
) -> TerminationChecker:
    """Sets ``task.finish`` once a limit is reached; the rest of that iteration still runs.

    A resumed run that has reached a limit already ends before its first iteration and says so.

    Reads: the counters that have a limit (env_step, train_iter, train_epoch); eval_value if there was an evaluation.

    Args:
      max_env_step: environment steps after which the run ends.
      max_train_iter: gradient steps after which the run ends.
      max_train_epoch: passes over recorded data after which the run ends.
      stop_value: evaluation mean at which the run ends; NaN never reaches it.
      task: the task to end; the global one by default.
    Raises:
      ConfigError: if no limit is given, or one is not an integer.
    """
    counters = {"env_step": max_env_step, "train_iter": max_train_iter, "train_epoch": max_train_epoch}
    limits = {
        name: whole_number(limit, f"termination_checker: max_{name} must be an integer of 0 or more")
        for name, limit in counters.items()
        if limit is not None
    }
    if not limits and stop_value is None:
        raise ConfigError(
            "termination_checker needs max_env_step, max_train_iter, max_train_epoch or stop_value; all are None"
        )
    if task is None:
        from minding.engine import task as global_task

        task = global_task
    return TerminationChecker(task, limits, stop_value)


class TerminationChecker:
    """The middleware that `termination_checker` makes."""

    def __init__(self, task: Finishable, limits: Mapping[str, int], stop_value: float | None) -> None:
        self.reason: str | None = None
        used = () if stop_value is None else ("eval_value",)
        self.declaration = Declaration("termination_checker", reads=tuple(limits), optional=used)
        self._task = task
        self._limits = dict(limits)
        self._stop_value = stop_value

    def limit(self, name: str, value: int) -> None:
        """Sets one of the limits, such as ``max_env_step``, for the next run of the task."""
        self._limits[name.removeprefix("max_")] = value
        self.reason = None

    def __call__(self, ctx: LearningContext) -> None:
        self._check(ctx, None if self._stop_value is None else ctx.eval_value)

    def resumed(self, ctx: LearningContext) -> None:
        """Ends a resumed run at once if it has already reached a limit."""
        self._check(ctx, ctx.last_eval_value)
        if self.reason is not None:
            console_logger().info("nothing left to train: %s has been reached; change it to continue", self.reason)

    def _check(self, ctx: LearningContext, value: float | None) -> None:
        if self._stop_value is not None and value is not None and value >= self._stop_value:
            self._end("stop_value")
            return
        for counter, limit in self._limits.items():
            if getattr(ctx, counter) >= limit:
                self._end(f"max_{counter}")
                return

    def _end(self, reason: str) -> None:
        self.reason = reason
        self._task.finish = True
