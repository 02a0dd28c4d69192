"""A network that is computed by an inference server."""

from __future__ import annotations

from collections.abc import Sequence

from minding.engine.lanes.inference.port import Line, Question
from minding.engine.types import Array


class RemoteNetworks:
    """The networks that the server computes for a collector, with the weights of its current request.

    Attributes:
      version: version of these weights.

    Args:
      line: connection to the server.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self.version = -1

    def network(self, place: int) -> RemoteNetwork:
        """The network at a position among the served ones."""
        return RemoteNetwork(self, place)

    def ask(self, place: int, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """Outputs of a network for observations, ``(B, ...)`` each."""
        return self._line.ask(Question(place, self.version, list(leaves)))

    def close(self) -> None:
        """Tells the server that there will be no further question."""
        self._line.close()


class RemoteNetwork:
    """A network whose outputs another worker computes; called like a network in this process."""

    def __init__(self, networks: RemoteNetworks, place: int) -> None:
        self._networks, self._place = networks, place

    def __call__(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        return self._networks.ask(self._place, leaves)
