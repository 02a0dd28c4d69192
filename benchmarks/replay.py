"""Times prioritized replay: drawing 256 of a million rows and setting their priorities.

    python -m benchmarks.replay

The rows themselves are gathered by the compiled update, and are no part of it.
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np

from minding.engine.buffers import PrioritizedBuffer
from minding.engine.data.batch import Field

ROWS, BATCH, CALLS, WARM_UP = 1_000_000, 256, 400, 50


def milliseconds() -> list[float]:
    """Milliseconds of each call."""
    fields = {"obs": Field((4,)), "next_obs": Field((4,)), "action": Field((), "int32"), "reward": Field()}
    buffer, rng = PrioritizedBuffer(ROWS, fields), np.random.default_rng(0)
    for _ in range(10):
        count = ROWS // 10
        rows = {name: np.zeros((count, *field.shape), field.dtype) for name, field in fields.items()}
        buffer.push(rows)
    errors = rng.exponential(size=(WARM_UP + CALLS, 1, BATCH)).astype(np.float32)
    times = []
    for error in errors:
        start = time.perf_counter()
        batch = buffer.sample(1, BATCH)
        buffer.update(batch, error)
        times.append((time.perf_counter() - start) * 1e3)
    return times[WARM_UP:]


def main() -> None:
    """Prints the median as JSON."""
    print(json.dumps({"ms": statistics.median(milliseconds())}))


if __name__ == "__main__":
    main()
