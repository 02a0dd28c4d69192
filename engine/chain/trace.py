"""A timeline by lane, in the Chrome trace format (chrome://tracing, https://ui.perfetto.dev)."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minding.engine.chain.middleware import Middleware

MAIN_LANE = "main"
_LIMIT = 200_000


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A named interval, in seconds of the machine's monotonic clock, which all its processes share."""

    name: str
    start: float
    end: float


class Trace:
    """Collects the first `limit` spans of a run, so that a long run does not fill memory and disk.

    Args:
      limit: maximum number of spans.
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
        """Adds the spans of a lane.

        Args:
          lane: name of the lane.
          spans: spans in the monotonic clock of this machine.
          error: seconds by which they may be off; above 0 if another machine's clock measured them.
        """
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
        """Writes a JSON file: one row per lane, times in microseconds from the first span.

        The name of a lane on another machine states by how much its times may be off.
        """
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
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")
