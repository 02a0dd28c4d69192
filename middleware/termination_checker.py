"""Ends the run when its goal or its budget is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minding.engine.context import OnlineRLContext
from minding.engine.errors import ConfigError
from minding.engine.middleware import declare


class Finishable(Protocol):
    """A task, as seen from here."""

    finish: bool


@declare(reads=("env_step", "train_iter"), optional=("eval_value",))
def termination_checker(
    *,
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
    stop_value: float | None = None,
    task: Finishable | None = None,
) -> TerminationChecker:
    """Sets ``task.finish`` once a limit is reached; the rest of that iteration still runs.

    Reads: env_step, train_iter; eval_value where an evaluation was made.
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
        raise ConfigError(
            "termination_checker needs max_env_step, max_train_iter or stop_value; all are None"
        )
    if task is None:
        from minding.engine import task as global_task

        task = global_task
    limits: dict[str, Callable[[OnlineRLContext], bool]] = {}
    if stop_value is not None:
        limits["stop_value"] = lambda ctx: ctx.eval_value is not None and ctx.eval_value >= stop_value
    if max_env_step is not None:
        limits["max_env_step"] = lambda ctx: ctx.env_step >= max_env_step
    if max_train_iter is not None:
        limits["max_train_iter"] = lambda ctx: ctx.train_iter >= max_train_iter
    return TerminationChecker(task, limits)


class TerminationChecker:
    """The middleware that `termination_checker` makes.

    Attributes:
      reason: name of the limit that ended the run, None while it goes on.
    """

    def __init__(self, task: Finishable, limits: dict[str, Callable[[OnlineRLContext], bool]]) -> None:
        self.reason: str | None = None
        self._task = task
        self._limits = limits

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Checks the limits."""
        for name, reached in self._limits.items():
            if reached(ctx):
                self.reason = name
                self._task.finish = True
                return
