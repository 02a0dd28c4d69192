"""The work of `benchmarks.dreamer`, the same numbers for both sides: NumPy only, the peer reads this module too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

DETER, LATENTS, CLASSES, UNITS, BINS, LIMIT = 128, 8, 8, 128, 41, 20.0
BATCH, LENGTH, HORIZON, STARTS = 16, 32, 15, 256
OBSERVATION, ACTION = 3, 1
"""Numbers of Pendulum's observations and actions."""
ROWS, EPISODE = 20_000, 200
MODEL_RATE, RATE, CLIP, SLOW = 1e-3, 3e-4, 100.0, 0.02
GAMMA, LAMBDA, FREE_NATS, PRIOR_WEIGHT, POSTERIOR_WEIGHT = 0.99, 0.95, 1.0, 1.0, 0.1
ENTROPY, DECAY, UNIFORM = 3e-4, 0.99, 0.01
POSTERIORS = ("observation", "full")
WARM_UP = 10
"""Updates before the clock starts: they compile."""


def rows() -> dict[str, Any]:
    """Replayed rows of random numbers, in the order of time, in episodes that a limit of time cuts."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ROWS + 1, OBSERVATION), np.float32)
    place = np.arange(ROWS) % EPISODE
    return {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "action": rng.uniform(-1, 1, (ROWS, ACTION)).astype(np.float32),
        "reward": -8.0 * rng.random(ROWS, np.float32),
        "terminated": np.zeros(ROWS, bool),
        "memory": np.zeros((ROWS, DETER + LATENTS * CLASSES + ACTION), np.float32),
        "begun": place == 0,
        "ended": place == EPISODE - 1,
    }


def timed(update: Callable[[], None], updates: int) -> dict[str, float]:
    """Milliseconds per update after the first ones, of the clock and of the processor; the median of five windows."""
    for _ in range(WARM_UP):
        update()
    windows = []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(max(1, updates // 5)):
            update()
        made = max(1, updates // 5)
        windows.append((1e3 * (time.perf_counter() - wall) / made, 1e3 * (time.process_time() - cpu) / made))
    wall_ms, cpu_ms = np.median(windows, axis=0).tolist()
    return {"wall_ms": wall_ms, "cpu_ms": cpu_ms}
