"""Target networks and the schedule of their updates; n-step targets of sequences, which need no network."""

import functools
from typing import Any

import numpy as np

from minding.engine.buffers import SequenceBatch
from minding.engine.data.batch import IndexedBatch
from minding.engine.data.returns import nstep as nstep_returns
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


def sequence_targets(batch: IndexedBatch, nstep: int, gamma: float, strayed: Array | None = None) -> dict[str, Array]:
    """The parts of n-step targets that do not depend on a network. T does not include the burn-in.

    Args:
      batch: batch with index ``(K, T, B)``. A batch of another class than `SequenceBatch` has no burn-in and no
        padding.
      strayed: ``(K, T, B)``, with a burn-in too, above 0 for rows before which returns end; None: none.

    Returns:
      By name, ``(K, T, B)`` each:
      - `learned`: float32, 0 for padding of a sequence;
      - `return`, `decay`: float32, R_t and gamma^k (1 - terminated);
      - `bootstrap`: int32, the transition whose successor gives the bootstrap value, counted as in (T B,);
      - `filled`: float32, like `learned` for the rows of the burn-in; only with a burn-in.
    """
    burn_in, filled = 0, np.ones(batch.index.shape, np.bool_)
    if isinstance(batch, SequenceBatch):
        burn_in, filled = batch.burn_in, batch.filled
    learned, index = filled[:, burn_in:], batch.index[:, burn_in:]
    steps, length, sequences = index.shape
    # Time comes first, and each sequence of each gradient step is a column.
    rows = index.transpose(1, 0, 2).reshape(length, -1)
    going = learned if strayed is None else learned & (strayed[:, burn_in:] == 0)
    going = going.transpose(1, 0, 2).reshape(length, -1)
    cut = np.concatenate([~going[1:], np.ones_like(going[:1])])
    reward, terminated = (batch.layout.read(batch.tables.host, name)[rows] for name in ("reward", "terminated"))
    total, last, discount = nstep_returns(reward, cut, n=nstep, gamma=gamma)
    decay = discount * (1.0 - np.take_along_axis(terminated, last, axis=0))

    def of_steps(columns: Array) -> Array:
        return np.ascontiguousarray(columns.reshape(length, steps, sequences).transpose(1, 0, 2))

    named = {
        "learned": learned.astype(np.float32),
        "return": of_steps(total),
        "decay": of_steps(decay.astype(np.float32)),
        "bootstrap": (of_steps(last) * sequences + np.arange(sequences)).astype(np.int32),
    }
    return {**named, "filled": filled[:, :burn_in].astype(np.float32)} if burn_in else named
