"""Target networks, and the schedule of their updates."""

import functools
from typing import Any

import numpy as np

from minding.engine.process import runtime
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.kernels import kernel
from minding.policies.learning.optim import Block, hide


class _Pair(nn.Cell):
    """An online network and its target, whose parameters need no gradient; on CPU each is one block, see `flat`. A
    subclass defines `moved`."""

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
            self.fused_move = _fused_move()

    def construct(self, tau, after):
        """Updates the target with the weight `tau` of the online network, a number; `after` is a result of the
        optimizer's step, which must come first."""
        if self.flat:
            return self.fused_move(self.flat_target, ops.depend(self.flat_online, after), tau)
        # There is no branch for a weight of 0: it would be a second graph around everything that follows.
        for i in range(len(self.online)):
            target, online = self.target[i], ops.depend(self.online[i], after)
            ops.assign(target, self.moved(target, online, ops.Reshape()(tau, ())))
        return tau

    def moved(self, target, online, tau):
        """The target after an update with the weight `tau` of the online network."""
        raise NotImplementedError


class CopyTarget(_Pair):
    """target = online, an exact copy, if the weight is 1, else unchanged."""

    def moved(self, target, online, tau):
        return ops.select(ops.BroadcastTo(target.shape)(tau > 0.0), online, target)


class SoftTarget(_Pair):
    """target -= tau (target - online): Polyak averaging (Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971,
    algorithm 1)."""

    def moved(self, target, online, tau):
        return target - tau * (target - online)


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

    Returns:
      float32 ``(K,)``.
    """
    if target.kind == "soft":
        return np.full(steps, target.tau, np.float32)
    number = done + 1 + np.arange(steps)
    return (number % target.freq == 0).astype(np.float32)
