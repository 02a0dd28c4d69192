"""Target networks."""

from __future__ import annotations

from minding.engine.runtime import ms, nn, ops


class _Pair(nn.Cell):
    """An online network and its target, whose parameters need no gradient."""

    def __init__(self, online: nn.Cell, target: nn.Cell) -> None:
        super().__init__()
        self.online = ms.ParameterTuple(online.get_parameters())
        self.target = ms.ParameterTuple(target.get_parameters())
        for p in self.target:
            p.requires_grad = False
        self.count = len(self.online)


class CopyTarget(_Pair):
    """target = online, exactly, where `due` (a number) is not 0."""

    def construct(self, due):
        if due > 0.0:
            for i in range(self.count):
                ops.assign(self.target[i], self.online[i])
        return due


class SoftTarget(_Pair):
    """target -= tau (target - online): Polyak averaging (Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971,
    algorithm 1) in two kernels a tensor, the second in place."""

    def __init__(self, online: nn.Cell, target: nn.Cell) -> None:
        super().__init__(online, target)
        self.move = ops.ApplyGradientDescent()

    def construct(self, tau):
        for i in range(self.count):
            self.move(self.target[i], tau, self.target[i] - self.online[i])
        return tau


def equalize(online: nn.Cell, target: nn.Cell) -> None:
    """Makes the target equal to the online network, outside of a graph (before the first step)."""
    for source, copy in zip(online.get_parameters(), target.get_parameters()):
        copy.set_data(ms.Tensor(source.asnumpy().copy()))
