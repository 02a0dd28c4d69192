"""The time that each middleware of a run takes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from types import GeneratorType
from typing import Any

from minding.engine.chain.middleware import Middleware, SecondHalf


@dataclasses.dataclass
class ProfileRow:
    """Time of one middleware, both halves together.

    Attributes:
      name: name of the middleware.
      calls: number of calls; a second half does not count as a call.
      seconds: total time of all calls, in seconds.
    """

    name: str
    calls: int = 0
    seconds: float = 0.0


class ProfileTable:
    """Collects the time that each middleware of a chain takes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = [ProfileRow(name) for name in names]

    def timed(self, position: int, middleware: Middleware[Any]) -> Middleware[Any]:
        """Returns the middleware with its time added to the row at `position`."""
        row = self.rows[position]
        clock = time.perf_counter

        def call(ctx: Any) -> Any:
            row.calls += 1
            start = clock()
            try:
                result = middleware(ctx)
            finally:
                row.seconds += clock() - start
            return _timed_halves(result, row) if isinstance(result, GeneratorType) else result

        return call


def _timed_halves(generator: SecondHalf, row: ProfileRow) -> SecondHalf:
    """Runs a generator and times each part; closing the result closes the generator."""
    clock = time.perf_counter
    try:
        while True:
            start = clock()
            try:
                next(generator)
            except StopIteration:
                return
            finally:
                row.seconds += clock() - start
            yield
    finally:
        generator.close()


def format_profile(table: ProfileTable) -> str:
    """Returns one line per middleware: calls, total in s, mean per call in us, share of the total time in %."""
    width = max([len("middleware"), len("total"), *(len(row.name) for row in table.rows)])
    total = sum(row.seconds for row in table.rows)
    lines = [f"{'middleware':<{width}}  {'calls':>9}  {'total s':>10}  {'mean us':>12}  {'share %':>7}"]
    for row in table.rows:
        mean = 1e6 * row.seconds / row.calls if row.calls else 0.0
        share = 100 * row.seconds / total if total else 0.0
        figures = f"{row.calls:>9}  {row.seconds:>10.3f}  {mean:>12.1f}  {share:>7.1f}"
        lines.append(f"{row.name:<{width}}  {figures}")
    lines.append(f"{'total':<{width}}  {'':>9}  {total:>10.3f}")
    return "\n".join(lines)
