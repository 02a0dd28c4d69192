"""The same for cpprb's PrioritizedReplayBuffer: ``python -m benchmarks.peers.cpprb_replay [ROWS]``.

Its `sample` also copies the rows, of 40 bytes each.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
from cpprb import PrioritizedReplayBuffer

from benchmarks.window import peak_mb

ROWS, BATCH, CALLS, WARM_UP = 1_000_000, 256, 400, 50


def milliseconds(rows: int) -> list[float]:
    """Milliseconds of each call."""
    shapes = {"obs": 4, "next_obs": 4, "action": 1, "reward": 1}
    fields = {name: {"shape": size, "dtype": np.float32} for name, size in shapes.items()}
    buffer, rng = PrioritizedReplayBuffer(rows, fields, alpha=0.6), np.random.default_rng(0)
    for _ in range(10):
        count = rows // 10
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
    """Prints the median and the memory of the process as JSON."""
    times = milliseconds(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
    print(json.dumps({"ms": statistics.median(times), "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
