"""Target networks."""

from __future__ import annotations

import functools
from typing import Any

from minding.engine.process import runtime
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel
from minding.policies.learning import flat


class _Pair(nn.Cell):
    """An online network and its target, whose parameters need no gradient; on CPU each is one block, see `flat`.

    Args:
      online: the online network; if `block` is given, its trainable parameters are in this block.
      target: network of the same shape.
      block: block of the optimizer that updates the online network; None without flat parameters.
    """

    def __init__(self, online: nn.Cell, target: nn.Cell, block: flat.Block | None) -> None:
        super().__init__()
        self.online = ms.ParameterTuple(online.trainable_params())
        self.target = ms.ParameterTuple(target.trainable_params())
        for p in target.get_parameters():
            p.requires_grad = False
        self.flat = block is not None
        if block is not None:
            flat.hide(self, "flat_online", block.flat(self.online))
            flat.hide(self, "flat_target", flat.Block(self.target).flat())

    def pairs(self, after):
        """Pairs of (target, online) parameters; reading the online parameters waits for `after`."""
        if self.flat:
            return ((self.flat_target, ops.depend(self.flat_online, after)),)
        pairs: tuple[Any, ...] = ()
        for i in range(len(self.online)):
            pairs = (*pairs, (self.target[i], self.online[i]))
        return pairs


class CopyTarget(_Pair):
    """target = online, an exact copy, if the number `due` is positive."""

    def construct(self, due, after):
        """Copies if due; `after` is a result of the optimizer's step, which must come first."""
        if ops.depend(due, after) > 0.0:
            for target, online in self.pairs(after):
                ops.assign(target, online)
        return due


class SoftTarget(_Pair):
    """target -= tau (target - online), in place: Polyak averaging (Lillicrap et al., 2016,
    https://arxiv.org/abs/1509.02971, algorithm 1)."""

    def __init__(self, online: nn.Cell, target: nn.Cell, block: flat.Block | None) -> None:
        super().__init__(online, target, block)
        self.move = ops.ApplyGradientDescent()
        if self.flat:
            self.fused_move = _fused_move()

    def construct(self, tau, after):
        """Updates the target; `after` is a result of the optimizer's step, which must come first."""
        if self.flat:
            return self.fused_move(self.flat_target, ops.depend(self.flat_online, after), tau)
        for target, online in self.pairs(after):
            self.move(target, tau.reshape(()), target - online)
        return tau


def make_target(online: nn.Cell, target: nn.Cell, block: flat.Block | None, kind: str) -> CopyTarget | SoftTarget:
    """The update rule of the target: 'soft', or 'periodic', which copies; see `_Pair` for the other arguments."""
    return SoftTarget(online, target, block) if kind == "soft" else CopyTarget(online, target, block)


def equalize(online: nn.Cell, target: nn.Cell) -> None:
    """Makes the target equal to the online network."""
    for source, copy in zip(online.get_parameters(), target.get_parameters()):
        runtime.assign(copy, source.asnumpy())


@functools.cache
def _fused_move() -> Any:
    primitive = kernel("move_target", lambda *shapes: shapes[2], lambda *dtypes: dtypes[2])
    # The kernel writes into its first input; with this attribute it is never optimized away or reordered.
    primitive.add_prim_attr("side_effect_mem", True)
    return primitive
