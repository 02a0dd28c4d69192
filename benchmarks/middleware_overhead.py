"""Times the engine's own work: microseconds of a middleware call, and of an iteration beside its calls.

    python -m benchmarks.middleware_overhead [--json PATH]

The middleware are empty, so that what is measured is the engine. The cost of an iteration (renewal of the
context, end conditions) is that of a chain of one; the cost of a call is what each further middleware adds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minding.engine import OnlineRLContext, Task

LENGTHS = (5, 10, 20)
ITERATIONS = 1000
REPEATS = 15
LIMIT_US = 2.0


def plain(ctx: OnlineRLContext) -> None:
    """A middleware that does nothing."""


def generator(ctx: OnlineRLContext) -> Iterator[None]:
    """A middleware with two halves that do nothing."""
    yield


def iteration_us(middleware: Any, length: int) -> float:
    """Microseconds of one iteration of a chain of `length` times `middleware`."""
    with Task().start(ctx=OnlineRLContext()) as task:
        for _ in range(length):
            task.use(middleware)
        task.run(max_step=ITERATIONS // 10)  # Warm-up.
        start = time.perf_counter()
        task.run(max_step=ITERATIONS // 10 + ITERATIONS)
        return (time.perf_counter() - start) / ITERATIONS * 1e6


def measure() -> list[dict[str, Any]]:
    """Times all chains; medians over `REPEATS` pairs with a chain of one."""
    rows = []
    for middleware in (plain, generator):
        for length in LENGTHS:
            runs = [(iteration_us(middleware, 1), iteration_us(middleware, length)) for _ in range(REPEATS)]
            ones, longs = zip(*runs)
            row = {
                "kind": middleware.__name__,
                "length": length,
                "us_per_call": statistics.median((long - one) / (length - 1) for one, long in runs),
                "us_per_iteration": statistics.median(longs),
                "us_chain_of_one": statistics.median(ones),
            }
            rows.append(row)
    return rows


def main() -> None:
    """Prints the table; writes it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there too")
    path = parser.parse_args().json
    rows = measure()
    print(f"{'kind':<10} {'length':>6} {'us per call':>10} {'us per iteration':>16} {'us, chain of one':>17}")
    for row in rows:
        figures = f"{row['us_per_call']:>10.2f} {row['us_per_iteration']:>16.2f} {row['us_chain_of_one']:>17.2f}"
        print(f"{row['kind']:<10} {row['length']:>6} {figures}")
    worst = max(row["us_per_call"] for row in rows)
    print(f"slowest: {worst:.2f} us a middleware call (at most {LIMIT_US} wanted)")
    if path is not None:
        path.write_text(json.dumps({"limit_us": LIMIT_US, "chains": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
