"""The connection between collectors and an inference server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from minding.engine.types import Array


class Question(NamedTuple):
    """A collector's request for the outputs of a network.

    Attributes:
      place: of the network among those that are served.
      version: of the weights.
      leaves: what the network takes.
    """

    place: int
    version: int
    leaves: Sequence[Array]


Reply = Callable[[tuple[Array, ...]], None]
"""Sends outputs to the collector that asked. It may have gone: nothing happens then."""


class Line(Protocol):
    """A collector's end."""

    def ask(self, question: Question) -> tuple[Array, ...]:
        """Returns the outputs of a network, which the caller then owns.

        Waits for a server if there is none, and asks again if it dies: whoever starts servers knows when to give up.

        Raises:
          ChannelClosed: there will be no other server.
        """
        ...

    def close(self) -> None:
        """Says that nothing more will be asked."""
        ...


class Counter(Protocol):
    """The server's end."""

    @property
    def askers(self) -> int:
        """The number of collectors that are connected."""
        ...

    def receive(self, timeout: float) -> list[tuple[Question, Reply]]:
        """The questions that are there, waiting up to that many seconds for the first."""
        ...

    def close(self) -> None: ...


class Port(Protocol):
    """Where a server is found; goes to all workers. A transport makes it, which knows how they reach each other."""

    def open(self) -> None:
        """In the main process, before a server starts."""
        ...

    def close(self) -> None:
        """In the main process: there will be no server until it is opened again."""
        ...

    def connect(self, asker: int) -> Line:
        """In a collector: its end.

        Args:
          asker: number of the collector.
        """
        ...

    def listen(self) -> Counter:
        """In the server: its end."""
        ...
