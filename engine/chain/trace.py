"""Recordings of a run, on request: a timeline by lane, and the time that each middleware takes."""

import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import GeneratorType
from typing import Any

from minding.engine.chain.middleware import Middleware, SecondHalf
from minding.engine.files import replace

MAIN_LANE = "main"
_LIMIT = 200_000


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A named interval, in seconds of the machine's monotonic clock, which all its processes share."""

    name: str
    start: float
    end: float


class Trace:
    """A timeline of a run, for chrome://tracing and https://ui.perfetto.dev.

    It keeps the first `limit` spans, so that a long run does not fill memory and disk.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._spans: dict[str, list[Span]] = {}
        self._errors: dict[str, float] = {}
        self._count = 0

    @property
    def lanes(self) -> dict[str, list[Span]]:
        """The spans of each lane, in the order in which lanes first appeared."""
        return self._spans

    def add(self, lane: str, spans: Iterable[Span], error: float = 0.0) -> None:
        """Adds the spans of a lane, which may be off by `error` seconds: above 0 if another machine's clock measured
        them."""
        if error:
            self._errors[lane] = max(error, self._errors.get(lane, 0.0))
        for span in spans:
            if self._count < self._limit:
                self._count += 1
                self._spans.setdefault(lane, []).append(span)

    def timed(self, name: str, middleware: Middleware[Any]) -> Middleware[Any]:
        """Returns the middleware of the main process with a span for each call of its first half."""
        clock = time.monotonic

        def call(ctx: Any) -> Any:
            start = clock()
            try:
                return middleware(ctx)
            finally:
                self.add(MAIN_LANE, [Span(name, start, clock())])

        return call

    def write(self, path: str | Path) -> None:
        """Writes a JSON file: one row per lane, times in microseconds from the first span. The name of a lane on
        another machine states by how much its times may be off."""
        begin = min((span.start for spans in self._spans.values() for span in spans), default=0.0)
        events: list[dict[str, Any]] = []
        for row, (lane, spans) in enumerate(self._spans.items()):
            error = self._errors.get(lane)
            name = lane if error is None else f"{lane} (another clock, ± {1e3 * error:.2g} ms)"
            events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": name}})
            events += [
                {
                    "ph": "X",
                    "name": span.name,
                    "pid": 0,
                    "tid": row,
                    "ts": round(1e6 * (span.start - begin), 1),
                    "dur": round(1e6 * (span.end - span.start), 1),
                }
                for span in spans
            ]
        replace(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


@dataclasses.dataclass
class ProfileRow:
    """Time of one middleware, both halves together.

    Attributes:
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

    def __str__(self) -> str:
        """One line per middleware: calls, total in s, mean per call in us, share of the total time in %."""
        width = max([len("middleware"), len("total"), *(len(row.name) for row in self.rows)])
        total = sum(row.seconds for row in self.rows)
        lines = [f"{'middleware':<{width}}  {'calls':>9}  {'total s':>10}  {'mean us':>12}  {'share %':>7}"]
        for row in self.rows:
            mean = 1e6 * row.seconds / row.calls if row.calls else 0.0
            share = 100 * row.seconds / total if total else 0.0
            figures = f"{row.calls:>9}  {row.seconds:>10.3f}  {mean:>12.1f}  {share:>7.1f}"
            lines.append(f"{row.name:<{width}}  {figures}")
        lines.append(f"{'total':<{width}}  {'':>9}  {total:>10.3f}")
        return "\n".join(lines)


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
