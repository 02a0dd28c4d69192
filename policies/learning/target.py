"""Target networks, and the schedule of their updates."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minding.engine.process import runtime
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.kernels import kernel
from minding.policies.learning.optim import Block, hide


class _Pair(nn.Cell):
    """An online network and its target, whose parameters need no gradient; on CPU each is one block, see `flat`.

    Args:
      online: the online network; if `block` is given, its trainable parameters are in this block.
      target: network of the same shape.
      block: block of the optimizer that updates the online network; None without flat parameters.
    """

    def __init__(self, online: nn.Cell, target: nn.Cell, block: Block | None) -> None:
        super().__init__()
        self.online = ms.ParameterTuple(online.trainable_params())
        self.target = ms.ParameterTuple(target.trainable_params())
        for p in target.get_parameters():
            p.requires_grad = False
        self.flat = block is not None
        if block is not None:
            hide(self, "flat_online", block.flat(self.online))
            hide(self, "flat_target", Block(self.target).flat())

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

    def __init__(self, online: nn.Cell, target: nn.Cell, block: Block | None) -> None:
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


def make_target(online: nn.Cell, target: nn.Cell, block: Block | None, kind: str) -> CopyTarget | SoftTarget:
    """The update rule of the target: 'soft', or 'periodic', which copies; see `_Pair` for the other arguments."""
    return SoftTarget(online, target, block) if kind == "soft" else CopyTarget(online, target, block)


def equalize(online: nn.Cell, target: nn.Cell) -> None:
    """Makes the target equal to the online network."""
    for source, copy in zip(online.get_parameters(), target.get_parameters()):
        runtime.assign(copy, source.asnumpy())


@functools.cache
def _fused_move() -> Any:
    primitive = kernel("move_target", lambda *shapes: shapes[2])
    # The kernel writes into its first input; with this attribute it is never optimized away or reordered.
    primitive.add_prim_attr("side_effect_mem", True)
    return primitive


def target_schedule(target: Any, done: int, steps: int) -> Array:
    """Weight of the online network in the update of the target after each of the next gradient steps; 0: no update.

    Args:
      target: the configuration `policy.learn.target`.
      done: number of gradient steps made before.
      steps: number of the next gradient steps, K.

    Returns:
      float32 ``(K,)``.
    """
    if target.kind == "soft":
        return np.full(steps, target.tau, np.float32)
    number = done + 1 + np.arange(steps)
    return (number % target.freq == 0).astype(np.float32)
