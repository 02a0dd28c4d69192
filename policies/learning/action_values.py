"""Reads the action values of a root cell, compiled, for any number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array
from minding.policies.learning.steps import GradientStep

_ROWS = 1024
"""Rows of a call: all calls have the same number, so that there is one graph."""


class _Values(nn.Cell):
    def __init__(self, root: GradientStep) -> None:
        # Parameters keep the names they have under the root.
        super().__init__(auto_prefix=False)
        self.root = root

    @ms.jit
    def construct(self, action, *obs):
        return self.root.action_value(action, obs)


class ActionValues:
    """Q(s, a) by `GradientStep.action_value` of a root, under its current parameters.

    Args:
      root: has action values.
      paths: of the observation's leaves, in the order in which networks take them.
      name: used in messages.
    """

    def __init__(self, root: GradientStep, paths: Sequence[str], name: str) -> None:
        self._compiled, self._paths = Compiled(_Values(root), name), tuple(paths)

    def __call__(self, obs: Mapping[str, Array], action: Array) -> Array:
        """Float32 ``(n,)`` from observations by path and actions in the policy's own units, ``(n, ...)`` each."""
        inputs = [_as_rows(action), *(_as_rows(obs[path]) for path in self._paths)]
        found = []
        for start in range(0, len(action), _ROWS):
            block = [values[start : start + _ROWS] for values in inputs]
            count = len(block[0])
            padded = [np.concatenate([x, np.zeros((_ROWS - count, *x.shape[1:]), x.dtype)]) for x in block]
            found.append(self._compiled(*[runtime.to_device(x) for x in padded]).asnumpy()[:count].copy())
        return np.concatenate(found)


def _as_rows(values: Array) -> Array:
    """In the dtypes in which gradient steps find rows."""
    if values.dtype == np.uint8:
        return values
    return values.astype(np.int32 if values.dtype.kind in "iu" else np.float32)
