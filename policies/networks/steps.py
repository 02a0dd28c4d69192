"""The gradient steps of one learn call, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from minding.engine.data.batch import RowLayout
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.networks.rows import Rows
from minding.policies.ops import lean

PRIORITY = "priority"
"""Name under which `RootCell.step` returns priorities."""
ALL_ROWS = "all_rows"
"""Name of the input with the numbers of all rows, see `RootCell.present`."""


class RootCell(nn.Cell):
    """Base of the cells that hold an algorithm's networks and optimizers. A subclass defines `step`.

    Args:
      layout: of the rows that are learned from.
      fields: names of those that `step` reads.

    Attributes:
      metrics: names of the numbers that `step` returns.
      prioritized: whether it also returns one priority per row, under the name `PRIORITY`.
      row_axes: number of axes of the rows of one step: 1 for (B,), 2 for (T, N).
      present_names: names of what `present` returns.
      watched, limit: name of the metric that ends the steps of a call once it exceeds the limit; None: nothing does.
    """

    metrics: ClassVar[Sequence[str]] = ()
    row_axes: ClassVar[int] = 1
    present_names: ClassVar[Sequence[str]] = ()

    def __init__(self, layout: RowLayout, fields: Sequence[str]) -> None:
        super().__init__()
        self.rows = Rows(layout, fields)
        self.prioritized = False
        self.watched: str | None = None
        self.limit = 0.0

    def step(self, batch):
        """Makes one gradient step and returns the metrics by name.

        Args:
          batch: by name: `index`, the numbers of the rows; their fields; what the policy adds for this step (`weight`,
            noise, ...); and numbers that hold for all steps of the call, (1,) each.
        """
        raise NotImplementedError

    def present(self, rows):
        """What the steps need of all rows under the parameters before the first step: by name, (R,) each.

        It is asked for where the policy passes an input `ALL_ROWS`, int32 (R,); `step` then finds the values of its own
        rows in its batch, by `present_names`.

        Args:
          rows: the fields of all rows, by name.
        """
        raise NotImplementedError


class GradientSteps(nn.Cell):
    """All gradient steps of a learn call.

    Args:
      root: makes one step.
      tables: the parameters that hold the rows.
      steps: names of the inputs that have an entry for each step.
      constants: names of those that hold for all steps.
    """

    def __init__(self, root: RootCell, tables: Any, steps: Sequence[str], constants: Sequence[str]) -> None:
        # Parameters keep the names they have under the root.
        super().__init__(auto_prefix=False)
        self.root = root
        self.tables = ms.ParameterTuple(tables)
        self.names = (*steps, *constants)
        self.num_steps = len(steps)
        self.has_present = ALL_ROWS in constants
        # The step, the watched metric and the sums of the metrics before the first one.
        zeros = (np.int32(0), np.float32(0), np.zeros(len(root.metrics), np.float32))
        self.zeros = tuple(ms.Tensor(x) for x in zeros)
        self.one = ms.Tensor(np.ones(1, np.float32))

    @ms.jit
    def construct(self, index, *inputs):
        """Makes the steps one after another.

        Args:
          index: int32 (K, B) or (K, T, N): the rows of each step.
          inputs: those of `steps`, (K, ...) each, then those of `constants`. With K = 1 index and inputs of steps come
            without that axis: a graph without a loop starts faster.

        Returns:
          (sums of the metrics, in their order; then, where a metric is watched, the number of steps made; and where the
          algorithm has priorities, those of the rows, shaped like `index`).
        """
        root = self.root
        present = self.of_all_rows(inputs)
        if index.ndim == root.row_axes:
            returned = root.step(self.batch(index, inputs, present))
            total = self.stacked(returned)
            if root.watched is not None:
                total = ops.concat((total, self.one))
            return (total, returned[PRIORITY]) if root.prioritized else total
        i, watched, total = self.zeros
        priorities = ops.cast(index, ms.float32)
        while self.goes_on(i, index.shape[0], watched):
            values = []
            for k in range(len(inputs)):
                values.append(lean.entry(inputs[k], i) if k < self.num_steps else inputs[k])
            returned = root.step(self.batch(lean.entry(index, i), values, present))
            total = total + self.stacked(returned)
            if root.watched is not None:
                watched = returned[root.watched]
            if root.prioritized:
                priorities = lean.with_entry(priorities, i, returned[PRIORITY])
            i = i + 1
        if root.watched is not None:
            total = ops.concat((total, ops.expand_dims(ops.cast(i, ms.float32), 0)))
        return (total, priorities) if root.prioritized else total

    def goes_on(self, i, count, watched):
        if self.root.watched is None:
            return i < count
        return i < count and watched <= self.root.limit

    def of_all_rows(self, inputs):
        if not self.has_present:
            return ()
        constants = {}
        for k in range(self.num_steps, len(self.names)):
            constants[self.names[k]] = inputs[k]
        rows = self.root.rows(constants[ALL_ROWS], self.tables)
        return self.root.present(rows)

    def batch(self, index, values, present):
        """All that a step needs, by name."""
        batch = self.root.rows(index, self.tables)
        batch["index"] = index
        for k in range(len(self.names)):
            batch[self.names[k]] = values[k]
        if self.has_present:
            for name in self.root.present_names:
                batch[name] = ops.gather(present[name], index, 0)
        return batch

    def stacked(self, returned):
        values = []
        for name in self.root.metrics:
            values.append(returned[name])
        return lean.stacked(values)
