"""A compiled reader of the action values of a root cell, for any number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array
from minding.policies.learning.steps import GradientStep

_ROWS = 1024
"""Number of rows per call; it is always the same, so that one graph serves all calls."""


class _Values(nn.Cell):
    def __init__(self, root: GradientStep) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.root = root

    @ms.jit
    def construct(self, action, *obs):
        return self.root.action_value(action, obs)


class ActionValues:
    """Q(s, a) by `GradientStep.action_value` of a root, under its current parameters.

    Args:
      root: root cell that has action values.
      paths: paths of the observation's leaves, in the order in which networks take them.
      name: name of the compiled function, for messages.
    """

    def __init__(self, root: GradientStep, paths: Sequence[str], name: str) -> None:
        self._compiled, self._paths = Compiled(_Values(root), name), tuple(paths)

    def __call__(self, obs: Mapping[str, Array], action: Array) -> Array:
        """Q(s, a), float32 ``(n,)``.

        Args:
          obs: observations ``(n, ...)`` by path.
          action: actions ``(n, ...)``, in the policy's own units.
        """
        inputs = [_as_rows(action), *(_as_rows(obs[path]) for path in self._paths)]
        found = []
        for start in range(0, len(action), _ROWS):
            block = [values[start : start + _ROWS] for values in inputs]
            count = len(block[0])
            padded = [np.concatenate([x, np.zeros((_ROWS - count, *x.shape[1:]), x.dtype)]) for x in block]
            found.append(self._compiled(*[runtime.to_device(x) for x in padded]).asnumpy()[:count].copy())
        return np.concatenate(found)


def _as_rows(values: Array) -> Array:
    """`values` in the dtype that gradient steps take: uint8, int32 or float32."""
    if values.dtype == np.uint8:
        return values
    return values.astype(np.int32 if values.dtype.kind in "iu" else np.float32)
