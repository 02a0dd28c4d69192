"""Recordings of a run, on request: the time of each middleware, and a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minding.engine.chain.middleware import Middleware
from minding.engine.chain.profiling import ProfileTable, format_profile
from minding.engine.chain.trace import Trace
from minding.engine.errors import ChainError


class Recording:
    """The time table and the trace of a task, each if it is asked for.

    Args:
      profile: measure the time of each middleware.
      trace: record when each middleware ran.

    Attributes:
      trace, profile: the recordings; None for one that was not requested.
    """

    def __init__(self, profile: bool, trace: bool) -> None:
        self.trace = Trace() if trace else None
        self.profile = ProfileTable([]) if profile else None

    def begin(self, names: list[str]) -> None:
        """Prepares a row per middleware of a chain; a further run of the same chain adds to the existing rows."""
        if self.profile is not None and len(self.profile.rows) != len(names):
            self.profile = ProfileTable(names)

    def timed(self, index: int, name: str, call: Middleware[Any]) -> Middleware[Any]:
        """Returns the middleware at a place of the chain, wrapped in the requested recordings."""
        if self.profile is not None:
            call = self.profile.timed(index, call)
        return call if self.trace is None else self.trace.timed(name, call)


class Recorded:
    """The recordings of a task."""

    _recording: Recording

    def write_trace(self, path: str | Path) -> None:
        """Writes the timeline of the run in the Chrome trace format, one row per lane.

        Raises:
          ChainError: the task was not started with ``trace=True``.
        """
        trace = self._recording.trace
        if trace is None:
            raise ChainError("write_trace: nothing was recorded; start with task.start(..., trace=True)")
        trace.write(path)

    def profile(self) -> str:
        """Returns the time of each middleware as a table.

        Raises:
          ChainError: the task was not started with ``profile=True``.
        """
        table = self._recording.profile
        if table is None:
            raise ChainError("profile: nothing was measured; start with task.start(..., profile=True)")
        return format_profile(table)
