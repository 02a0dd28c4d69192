"""The loop over the gradient steps of one iteration."""

from __future__ import annotations

import numpy as np

from minding.engine.process.runtime import ms, nn
from minding.policies.ops import lean


class GradientSteps(nn.Cell):
    """Base of root cells whose gradient steps need only rows and the learning rate.

    A subclass defines ``step(index, learning_rate, tables)``, which performs one step and returns its metrics.

    Args:
      num_metrics: number of metrics.
    """

    def __init__(self, num_metrics: int) -> None:
        super().__init__()
        # The step and the sums of the metrics before the first one.
        self.zeros = (ms.Tensor(np.int32(0)), ms.Tensor(np.zeros(num_metrics, np.float32)))

    def construct(self, inputs, tables):
        """Inputs: index int32 (K, ...), one entry per step; learning rate (). Returns the sums of the metrics."""
        index, learning_rate = inputs
        if index.shape[0] == 1:
            # A graph without a loop starts faster.
            return self.step(lean.entry(index, self.zeros[0]), learning_rate, tables)
        i, total = self.zeros
        while i < index.shape[0]:
            total = total + self.step(lean.entry(index, i), learning_rate, tables)
            i = i + 1
        return total
