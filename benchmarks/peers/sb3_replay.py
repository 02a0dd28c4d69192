"""A uniform draw of Stable-Baselines3's ReplayBuffer: ``python -m benchmarks.peers.sb3_replay ROWS``; prints JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from benchmarks.window import peak_mb

BATCH, CALLS, WARM_UP = 256, 400, 50


def milliseconds(rows: int) -> list[float]:
    """Milliseconds of each call."""
    torch.set_num_threads(1)
    obs_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    buffer = ReplayBuffer(rows, obs_space, spaces.Discrete(2), device="cpu", handle_timeout_termination=False)
    # Full from the start: it takes one row at a time, which is minutes for ten millions.
    for table in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones):
        table[:] = 0
    buffer.full = True
    times = []
    for _ in range(WARM_UP + CALLS):
        start = time.perf_counter()
        buffer.sample(BATCH)
        times.append((time.perf_counter() - start) * 1e3)
    return times[WARM_UP:]


def main() -> None:
    """Prints the median and the memory of the process as JSON."""
    times = milliseconds(int(sys.argv[1]))
    print(json.dumps({"ms": statistics.median(times), "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
