"""CartPole that takes its time: `benchmarks.slow_cartpole:WaitingCartPole` and `...:ComputingCartPole`."""

from __future__ import annotations

import time
from typing import Any

import gymnasium


class WaitingCartPole(gymnasium.Wrapper):  # type: ignore[type-arg]
    """CartPole-v1 whose steps wait, as for a simulator on another machine.

    Args:
      seconds: a step waits.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        return super().step(action)


class ComputingCartPole(gymnasium.Wrapper):  # type: ignore[type-arg]
    """CartPole-v1 whose steps compute, as a simulator on this machine.

    Args:
      seconds: of processor time a step takes.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return super().step(action)
