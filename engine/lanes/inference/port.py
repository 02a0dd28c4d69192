"""The connection between collectors and an inference server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from minding.engine.types import Array


class Question(NamedTuple):
    """A collector's request for the outputs of a network.

    Attributes:
      place: position of the network among the served ones.
      version: version of the weights.
      leaves: inputs of the network.
    """

    place: int
    version: int
    leaves: Sequence[Array]


Reply = Callable[[tuple[Array, ...]], None]
"""Sends outputs to the collector that asked; has no effect if the collector has ended."""


class Line(Protocol):
    """A collector's end."""

    def ask(self, question: Question) -> tuple[Array, ...]:
        """Returns the outputs of a network, which the caller then owns.

        Waits for a server if there is none, and asks again if it dies; the main process decides when to give up.

        Raises:
          ChannelClosed: the main process has closed the port.
        """
        ...

    def close(self) -> None:
        """Tells the server that there will be no further question."""
        ...


class Counter(Protocol):
    """The server's end."""

    @property
    def askers(self) -> int:
        """The number of collectors that are connected."""
        ...

    def receive(self, timeout: float) -> list[tuple[Question, Reply]]:
        """The questions that have arrived; waits up to `timeout` seconds for the first."""
        ...

    def close(self) -> None: ...


class Port(Protocol):
    """The address of a server, made by the transport; all workers receive it."""

    def open(self) -> None:
        """Called in the main process before a server starts."""
        ...

    def close(self) -> None:
        """Called in the main process when there will be no server until the next `open`."""
        ...

    def connect(self, asker: int) -> Line:
        """Returns the collector's end; called in the collector.

        Args:
          asker: number of the collector.
        """
        ...

    def listen(self) -> Counter:
        """Returns the server's end; called in the server."""
        ...
