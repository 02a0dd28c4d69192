"""When target networks move."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.types import Array


def target_moves(target: Any, done: int, steps: int) -> Array:
    """Share of the online weights that moves into the target after each of the next gradient steps.

    Args:
      target: the configuration `policy.learn.target`.
      done: gradient steps before.
      steps: how many follow, K.

    Returns:
      float32 ``(K,)``.
    """
    if target.kind == "soft":
        return np.full(steps, target.tau, np.float32)
    number = done + 1 + np.arange(steps)
    return (number % target.freq == 0).astype(np.float32)
