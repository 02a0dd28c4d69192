"""The same for cpprb's PrioritizedReplayBuffer: ``python -m benchmarks.peers.cpprb_replay``.

Its `sample` also copies the rows, of 40 bytes each.
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np
from cpprb import PrioritizedReplayBuffer

ROWS, BATCH, CALLS, WARM_UP = 1_000_000, 256, 400, 50


def milliseconds() -> list[float]:
    """Milliseconds of each call."""
    shapes = {"obs": 4, "next_obs": 4, "action": 1, "reward": 1}
    fields = {name: {"shape": size, "dtype": np.float32} for name, size in shapes.items()}
    buffer, rng = PrioritizedReplayBuffer(ROWS, fields, alpha=0.6), np.random.default_rng(0)
    for _ in range(10):
        count = ROWS // 10
        buffer.add(**{name: np.zeros((count, size), np.float32) for name, size in shapes.items()})
    errors = rng.exponential(size=(WARM_UP + CALLS, BATCH)).astype(np.float32)
    times = []
    for error in errors:
        start = time.perf_counter()
        batch = buffer.sample(BATCH, beta=0.4)
        buffer.update_priorities(batch["indexes"], error)
        times.append((time.perf_counter() - start) * 1e3)
    return times[WARM_UP:]


def main() -> None:
    """Prints the median as JSON."""
    print(json.dumps({"ms": statistics.median(milliseconds())}))


if __name__ == "__main__":
    main()
