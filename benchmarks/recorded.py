"""The recorded data of a case, the same numbers for both sides: NumPy only, the peers read this module too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cases import OfflineCase

OBSERVATION, ACTION = 17, 6
"""Numbers of HalfCheetah's observations and actions."""


def episodes(case: OfflineCase) -> Iterator[dict[str, Any]]:
    """Episodes of random numbers, each cut by a limit of time.

    Returns:
      Of each, `obs` ``(T + 1, 17)``, `action` ``(T, 6)`` in [-1, 1] and `reward` ``(T,)``, all float32; how it ended.
    """
    rng, steps = np.random.default_rng(0), case.episode_length
    for _ in range(case.rows // steps):
        yield {
            "obs": rng.standard_normal((steps + 1, OBSERVATION), np.float32),
            "action": rng.uniform(-1, 1, (steps, ACTION)).astype(np.float32),
            "reward": rng.standard_normal(steps, np.float32),
            "terminated": False,
            "truncated": True,
        }
