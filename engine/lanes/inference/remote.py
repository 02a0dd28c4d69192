"""A network that is computed by an inference server."""

from __future__ import annotations

from collections.abc import Sequence

from minding.engine.lanes.inference.port import Line, Question
from minding.engine.types import Array


class RemoteNetworks:
    """The networks that a collector asks for, with the weights of its current request.

    Attributes:
      version: of these weights.

    Args:
      line: to the server.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self.version = -1

    def network(self, place: int) -> RemoteNetwork:
        """The network at a place among those that are served."""
        return RemoteNetwork(self, place)

    def ask(self, place: int, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """Outputs of a network for observations, ``(B, ...)`` each."""
        return self._line.ask(Question(place, self.version, list(leaves)))

    def close(self) -> None:
        """Says that nothing more will be asked."""
        self._line.close()


class RemoteNetwork:
    """A network whose outputs another worker computes; called like a network in this process."""

    def __init__(self, networks: RemoteNetworks, place: int) -> None:
        self._networks, self._place = networks, place

    def __call__(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        return self._networks.ask(self._place, leaves)
