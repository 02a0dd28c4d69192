"""Schedule of target network updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.types import Array


def target_moves(target: Any, done: int, steps: int) -> Array:
    """Weight of the online network in the update of the target after each of the next gradient steps; 0: no update.

    Args:
      target: the configuration `policy.learn.target`.
      done: number of gradient steps made before.
      steps: number of the next gradient steps, K.

    Returns:
      float32 ``(K,)``.
    """
    if target.kind == "soft":
        return np.full(steps, target.tau, np.float32)
    number = done + 1 + np.arange(steps)
    return (number % target.freq == 0).astype(np.float32)
