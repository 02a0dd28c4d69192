"""The interface between a task and the lanes that run parts of its chain elsewhere.

`engine.lanes` answers; the chain knows nothing of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minding.engine.chain.context import Context
from minding.engine.chain.pipeline import Node
from minding.engine.chain.trace import Trace

UNDIVIDED = {"lanes.collectors": 1, "lanes.shards": 1}
"""The division of a synchronous run, see `Lanes.division`."""


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """A worker of a lane, at one moment.

    Attributes:
      waited: seconds that the main process has waited for its answers.
    """

    name: str
    kind: str
    node: str
    pid: int | None
    member: str
    weights_age: int | None
    backlog: int
    waited: float
    restarts: int


class Lanes(Protocol):
    """A chain divided into lanes, parts of which run elsewhere."""

    nodes: list[Node]
    processors: tuple[str, ...]

    @property
    def division(self) -> dict[str, int]:
        """The number of collectors, and of those that share an iteration, by the names of the settings."""
        ...

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Ids of the processes on this machine that run parts."""
        ...

    @property
    def restarts(self) -> int:
        """The number of times that a part died and was restarted."""
        ...

    @property
    def workers(self) -> tuple[WorkerStatus, ...]:
        """The present status of each worker that was started."""
        ...

    def check(self) -> None:
        """Refuses middleware that cannot run in the lane that they were assigned to."""
        ...

    def begin(self, trace: Trace | None) -> None:
        """Called before the first iteration of a run, when all state has been loaded."""
        ...

    def settle(self, ctx: Context) -> None:
        """Called at the end of a run that was not interrupted: waits for work in progress."""
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...

    def view(self, nodes: Sequence[Node]) -> str:
        """Returns the chain, lane by lane, as text."""
        ...


class Run(Protocol):
    """The task whose chain is run, as its parts see it."""

    finish: bool

    @property
    def interrupted_by(self) -> str | None: ...

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None: ...


MakeLanes = Callable[[Sequence[Node], Context, Run], Lanes]
"""Divides a chain into lanes: given the chain, the first context and the task that runs it."""

LaneFactory = Callable[[Any], MakeLanes]
"""Takes the argument `lanes` of `start` (None if it was not given); ConfigError for unknown or wrong values."""
