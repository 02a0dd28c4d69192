"""Several parameters as one: an optimizer or a target network then needs one kernel instead of one per tensor.

Launching a kernel costs more than a step of Adam on a small tensor. On CPU, parameters can be placed one after another
in a block of memory, and an additional flat parameter covers the whole block. MindSpore does not know that they share
memory, so a graph does not order reads through one against writes through the other. Data dependencies keep the order
instead: `Adam` and the target networks take the results that must come first as an argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array

_ALIGNMENT = 64
"""Alignment of each parameter in bytes, one cache line; without it, 256 x 256 products take an eighth longer."""
_FLOATS = _ALIGNMENT // 4
_numbers = itertools.count()


class Block:
    """Moves float32 parameters into one block of memory, in order, before any graph uses them.

    The parameters keep their names, shapes and values, and code that reads or writes them is unaffected.

    Args:
      params: the parameters.
    """

    def __init__(self, params: Sequence[ms.Parameter]) -> None:
        starts = [0, *itertools.accumulate(_padded(p.size) for p in params)]
        self._memory = _aligned_zeros(starts[-1])
        self._range = {id(p): (start, start + p.size) for p, start in zip(params, starts)}
        for p, start in zip(params, starts):
            view = self._memory[start : start + p.size].reshape(p.shape)
            view[...] = p.asnumpy()
            p.set_data(ms.from_numpy(view))

    def flat(self, params: Sequence[ms.Parameter] | None = None) -> ms.Parameter:
        """One parameter ``(n,)`` over the memory, including padding, of `params`, which must be adjacent in the block.

        Args:
          params: the parameters; None: all of the block.
        """
        memory = self._memory
        if params is not None:
            memory = memory[self._range[id(params[0])][0] : _padded(self._range[id(params[-1])][1])]
        parameter = ms.Parameter(ms.Tensor(memory), name=f"flat.{next(_numbers)}", requires_grad=False)
        # The constructor copies the data, so the shared memory is set afterwards.
        parameter.set_data(ms.from_numpy(memory))
        return parameter


def hide(cell: nn.Cell, name: str, flat: ms.Parameter) -> None:
    """Makes a flat parameter an attribute of a cell, for use in `construct`, without adding it to the cell's state."""
    object.__setattr__(cell, name, flat)


def _padded(size: int) -> int:
    return -(-size // _FLOATS) * _FLOATS


def _aligned_zeros(count: int) -> Array:
    memory = np.zeros(count + _FLOATS, np.float32)
    start = -memory.ctypes.data % _ALIGNMENT // 4
    return memory[start : start + count]
