"""Timers: how long an iteration takes, and how long it takes to reach a return."""

from __future__ import annotations

import collections
import dataclasses
import statistics
import time
from collections.abc import Callable

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import SecondHalf, declare
from minding.engine.console import console_logger
from minding.engine.errors import ConfigError
from minding.engine.types import StateDict

Clock = Callable[[], float]


@declare(reads=("total_step",))
def epoch_timer(print_per: int = 100, *, clock: Clock = time.perf_counter) -> EpochTimer:
    """Measures the wall time of whole iterations; put it first in the chain.

    Reads: total_step.

    Args:
      print_per: iterations between two messages, and how many of them each message covers.
      clock: function that returns the time in seconds.
    Raises:
      ConfigError: if `print_per` is not positive.
    """
    if print_per < 1:
        raise ConfigError(f"epoch_timer(print_per={print_per}): expected at least 1 iteration")
    return EpochTimer(print_per, clock)


class EpochTimer:
    """The middleware that `epoch_timer` makes; `median` and `mean` can be read at any time."""

    def __init__(self, print_per: int, clock: Clock) -> None:
        self._print_per = print_per
        self._clock = clock
        self._seconds: collections.deque[float] = collections.deque(maxlen=print_per)

    def __call__(self, ctx: OnlineRLContext) -> SecondHalf:
        """Starts the clock; the second half, which runs once the rest of the chain has finished, stops it."""
        start = self._clock()
        yield
        self._seconds.append(self._clock() - start)
        if (ctx.total_step + 1) % self._print_per == 0:
            console_logger().info(
                "iteration %d: median %.2f ms, mean %.2f ms over the last %d",
                ctx.total_step + 1,
                1e3 * self.median,
                1e3 * self.mean,
                len(self._seconds),
            )

    def state_dict(self) -> StateDict:
        """Wall times of the last iterations."""
        return {"seconds": list(self._seconds)}

    def load_state_dict(self, state: StateDict) -> None:
        self._seconds.clear()
        self._seconds.extend(state["seconds"])

    @property
    def median(self) -> float:
        """Median time of the last `print_per` iterations in seconds; NaN before the first."""
        return statistics.median(self._seconds) if self._seconds else float("nan")

    @property
    def mean(self) -> float:
        """Mean time of the last `print_per` iterations in seconds; NaN before the first."""
        return statistics.fmean(self._seconds) if self._seconds else float("nan")


@dataclasses.dataclass(frozen=True, slots=True)
class EvalTime:
    """When an evaluation took place: seconds since the run's start, environment steps, mean return."""

    seconds: float
    env_step: int
    value: float


@declare(reads=("env_step",), optional=("eval_value",))
def reward_timer(target: float | None = None, *, clock: Clock = time.perf_counter) -> RewardTimer:
    """Measures wall time and environment steps until each evaluation, and until the first that reaches `target`.

    Reads: env_step; eval_value if there was an evaluation.

    Args:
      target: mean return to reach; None times the evaluations only.
      clock: function that returns the time in seconds.
    """
    return RewardTimer(target, clock)


class RewardTimer:
    """The middleware that `reward_timer` makes."""

    def __init__(self, target: float | None, clock: Clock) -> None:
        self.evaluations: list[EvalTime] = []
        self.reached: EvalTime | None = None
        self._target = target
        self._clock = clock
        self._earlier = 0.0
        self._start: float | None = None

    def __call__(self, ctx: OnlineRLContext) -> None:
        if self._start is None:
            self._start = self._clock()
        if ctx.eval_value is None:
            return
        evaluation = EvalTime(self._seconds(), ctx.env_step, float(ctx.eval_value))
        self.evaluations.append(evaluation)
        message = "return %.2f after %.1f s and %d environment steps"
        numbers = (evaluation.value, evaluation.seconds, evaluation.env_step)
        console_logger().info(message, *numbers)
        if self._target is not None and self.reached is None and evaluation.value >= self._target:
            self.reached = evaluation
            console_logger().info("target %g reached: " + message, self._target, *numbers)

    def state_dict(self) -> StateDict:
        """The evaluations so far and the seconds since the run's start."""
        return {
            "seconds": self._seconds(),
            "evaluations": [list(dataclasses.astuple(each)) for each in self.evaluations],
            "reached": None if self.reached is None else self.evaluations.index(self.reached),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continues counting from the saved time."""
        self.evaluations = [EvalTime(*each) for each in state["evaluations"]]
        self.reached = None if state["reached"] is None else self.evaluations[state["reached"]]
        self._earlier = state["seconds"]
        self._start = None

    def _seconds(self) -> float:
        running = 0.0 if self._start is None else self._clock() - self._start
        return self._earlier + running
