"""Ends the run when its goal or its budget is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.errors import ConfigError
from minding.engine.run.loggers import console_logger

Limit = Callable[[OnlineRLContext, "float | None"], bool]
"""Whether it has been reached, given the context and the newest evaluation mean."""


class Finishable(Protocol):
    """A task, as seen from here."""

    finish: bool


@declare(reads=("env_step", "train_iter"), optional=("eval_value",))
def termination_checker(
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
    *,
    stop_value: float | None = None,
    task: Finishable | None = None,
) -> TerminationChecker:
    """Sets ``task.finish`` once a limit is reached; the rest of that iteration still runs.

    A resumed run that has reached a limit already ends before its first iteration and says so.

    Reads: env_step, train_iter; eval_value if there was an evaluation.
    Writes: nothing.

    Args:
      max_env_step: environment steps after which the run ends.
      max_train_iter: gradient steps after which it ends.
      stop_value: evaluation mean at which it ends; NaN never reaches it.
      task: the task to end; the global one by default.
    Raises:
      ConfigError: if no limit is given.
    """
    if max_env_step is None and max_train_iter is None and stop_value is None:
        raise ConfigError("termination_checker needs max_env_step, max_train_iter or stop_value; all are None")
    if task is None:
        from minding.engine import task as global_task

        task = global_task
    limits: dict[str, Limit] = {}
    if stop_value is not None:
        limits["stop_value"] = lambda ctx, value: value is not None and value >= stop_value
    if max_env_step is not None:
        limits["max_env_step"] = lambda ctx, value: ctx.env_step >= max_env_step
    if max_train_iter is not None:
        limits["max_train_iter"] = lambda ctx, value: ctx.train_iter >= max_train_iter
    return TerminationChecker(task, limits)


class TerminationChecker:
    """The middleware that `termination_checker` makes.

    Attributes:
      reason: name of the limit that ended the run, None while it continues.
    """

    def __init__(self, task: Finishable, limits: dict[str, Limit]) -> None:
        self.reason: str | None = None
        self._task = task
        self._limits = limits

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Checks the limits."""
        self._check(ctx, ctx.eval_value)

    def resumed(self, ctx: OnlineRLContext) -> None:
        """Ends the run at once if nothing is left to do."""
        self._check(ctx, ctx.last_eval_value)
        if self.reason is not None:
            console_logger().info("nothing left to train: %s has been reached; change it to continue", self.reason)

    def _check(self, ctx: OnlineRLContext, value: float | None) -> None:
        for name, reached in self._limits.items():
            if reached(ctx, value):
                self.reason = name
                self._task.finish = True
                return
