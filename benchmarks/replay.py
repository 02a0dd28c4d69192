"""Times the draw of 256 rows from a full replay: ``python -m benchmarks.replay [ROWS] [uniform]``; prints JSON.

By priority (the default), their priorities are set as well. The rows themselves are gathered by the compiled update,
and are not part of it; a uniform draw also copies them through NumPy, as other libraries do in theirs.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.window import peak_mb
from minding.engine.buffers import Priority, ReplayBuffer
from minding.engine.data.batch import Field

ROWS, BATCH, CALLS, WARM_UP = 1_000_000, 256, 400, 50
FIELDS = {"obs": Field((4,)), "next_obs": Field((4,)), "action": Field((), "int32"), "reward": Field()}


def milliseconds(rows: int, uniform: bool) -> list[float]:
    """Milliseconds of each call."""
    call = _uniform(rows) if uniform else _prioritized(rows)
    times = []
    for number in range(WARM_UP + CALLS):
        start = time.perf_counter()
        call(number)
        times.append((time.perf_counter() - start) * 1e3)
    return times[WARM_UP:]


def _uniform(rows: int) -> Callable[[int], None]:
    buffer = ReplayBuffer(rows, FIELDS)
    _fill(buffer, rows)

    def call(_: int) -> None:
        batch = buffer.sample(1, BATCH)
        for name in FIELDS:
            batch.layout.read(batch.tables.host, name, batch.index[0])

    return call


def _prioritized(rows: int) -> Callable[[int], None]:
    buffer, rng = ReplayBuffer(rows, FIELDS, priority=Priority()), np.random.default_rng(0)
    _fill(buffer, rows)
    errors = rng.exponential(size=(WARM_UP + CALLS, 1, BATCH)).astype(np.float32)

    def call(number: int) -> None:
        buffer.update(buffer.sample(1, BATCH), errors[number])

    return call


def _fill(buffer: ReplayBuffer, rows: int) -> None:
    count = rows // 10
    values = {name: np.zeros((count, *field.shape), field.dtype) for name, field in FIELDS.items()}
    for _ in range(10):
        buffer.push(values)


def main() -> None:
    """Prints the median and the memory of the process as JSON."""
    rows = [int(argument) for argument in sys.argv[1:] if argument != "uniform"]
    times = milliseconds(rows[0] if rows else ROWS, "uniform" in sys.argv[1:])
    print(json.dumps({"ms": statistics.median(times), "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
