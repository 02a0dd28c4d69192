"""CartPole whose steps raise at random: `proofs.flaky_cartpole:FlakyCartPole`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class FlakyCartPole(gymnasium.Wrapper):  # type: ignore[type-arg]
    """CartPole-v1 with its time limit.

    Args:
      share: of the steps that raise, in [0, 1).
    """

    def __init__(self, share: float) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._share = share
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        # A separate generator, so that the dynamics are those of the environment without faults.
        self._rng = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._rng.random() < self._share:
            raise RuntimeError("a fault on purpose")
        return super().step(action)
