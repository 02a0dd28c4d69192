"""Target networks."""

from __future__ import annotations

from minding.engine.runtime import ms, nn, ops


class TargetUpdate(nn.Cell):
    """Moves a share of the online weights into the target:  target = (1 - tau) target + tau online.

    ``tau = 1`` copies exactly; small values are Polyak averaging (Lillicrap et al., 2016,
    https://arxiv.org/abs/1509.02971, algorithm 1).

    Args:
      online, target: cells of the same structure. The target's parameters stop needing gradients.
    """

    def __init__(self, online: nn.Cell, target: nn.Cell) -> None:
        super().__init__()
        self.online = ms.ParameterTuple(online.get_parameters())
        self.target = ms.ParameterTuple(target.get_parameters())
        for p in self.target:
            p.requires_grad = False
        self.count = len(self.online)

    def construct(self, tau):
        keep = 1.0 - tau
        for i in range(self.count):
            ops.assign(self.target[i], keep * self.target[i] + tau * self.online[i])
        return tau

    def copy(self) -> None:
        """Makes the target equal to the online network, outside of a graph (before the first step)."""
        for online, target in zip(self.online, self.target):
            target.set_data(ms.Tensor(online.asnumpy().copy()))
