"""What a task asks of whatever runs parts of its chain elsewhere.

`engine.lanes` answers; the chain knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minding.engine.chain.context import Context
from minding.engine.chain.nodes import Node
from minding.engine.chain.trace import Trace

UNDIVIDED = {"lanes.collectors": 1, "lanes.shards": 1}
"""The division of a synchronous run, see `Lanes.division`."""


class Lanes(Protocol):
    """A chain divided into lanes, parts of which run elsewhere.

    Attributes:
      nodes: the chain as this process runs it.
    """

    nodes: list[Node]

    @property
    def division(self) -> dict[str, int]:
        """How many collectors there are, and how many of them share an iteration, by the names of the settings."""
        ...

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of what runs elsewhere."""
        ...

    @property
    def restarts(self) -> int:
        """How often a part died and was restarted."""
        ...

    def check(self) -> None:
        """Refuses middleware that cannot do elsewhere what they do here.

        Raises:
          ChainError: with what to do instead.
        """
        ...

    def begin(self, trace: Trace | None) -> None:
        """Before the first iteration of a run, with all state loaded."""
        ...

    def settle(self, ctx: Context) -> None:
        """At the end of a run that was not interrupted: waits for what is under way."""
        ...

    def close(self) -> None:
        """Ends what runs elsewhere."""
        ...

    def view(self, nodes: Sequence[Node]) -> str:
        """The chain by parts, as text."""
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
"""From what `start` was given as `lanes` (None if nothing was); ConfigError for what is unknown or out of range."""
