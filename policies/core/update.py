"""Runs a policy's gradient steps: inputs by name, compiled for the tables that they read."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process import runtime
from minding.engine.process.runtime import RecompileWarning
from minding.engine.types import Array, LearnOutput
from minding.policies.networks.steps import GradientSteps, RootCell


@dataclasses.dataclass(slots=True)
class Inputs:
    """What a learn call passes to its gradient steps besides the rows.

    Attributes:
      steps: by name, arrays ``(K, ...)`` with an entry for each step.
      constants: by name, arrays and numbers that hold for all steps.
    """

    steps: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, Array | float] = dataclasses.field(default_factory=dict)


class Update:
    """All gradient steps of an iteration in one compiled call.

    The tables are parameters of the compiled graph, so it is compiled for one buffer; another buffer causes a
    recompilation, which is reported. For each set of input names there is a graph.

    Args:
      root: makes a step.
      name: used in messages.
    """

    def __init__(self, root: RootCell, name: str) -> None:
        self._root = root
        self._name = name
        self._metrics = tuple(root.metrics)
        self._tables: object = None
        self._compiled: dict[tuple[str, ...], runtime.Compiled] = {}

    @property
    def signatures(self) -> int:
        """Number of distinct input signatures compiled for the current tables."""
        return sum(compiled.signatures for compiled in self._compiled.values())

    def __call__(self, batch: IndexedBatch, inputs: Inputs) -> LearnOutput:
        """Makes the gradient steps of a batch; metrics are means over those made."""
        index, values = batch.index, list(inputs.steps.values())
        if len(index) == 1:
            # See `GradientSteps`.
            index, values = index[0], [x[0] for x in values]
        numbers = [np.float32(x) if isinstance(x, float) else x for x in inputs.constants.values()]
        arrays = [np.asarray(x) for x in (index, *values, *numbers)]
        returned = self._graph(batch, inputs)(*[runtime.to_device(x) for x in arrays])
        total, priorities = returned if self._root.prioritized else (returned, None)
        # `tolist()` is four times as fast as `asnumpy()` on a fresh tensor.
        sums = total.tolist()
        steps = len(batch.index) if self._root.watched is None else int(sums[-1])
        metrics = {name: value / steps for name, value in zip(self._metrics, sums)}
        if priorities is not None:
            priorities = priorities.asnumpy().reshape(batch.index.shape)
        return LearnOutput(metrics, steps, priorities)

    def _graph(self, batch: IndexedBatch, inputs: Inputs) -> runtime.Compiled:
        if batch.tables is not self._tables:
            if self._tables is not None:
                warnings.warn(
                    f"{self._name} learns from another buffer than before and is recompiled; use one buffer",
                    RecompileWarning,
                    stacklevel=5,
                )
            self._tables = batch.tables
            self._compiled = {}
        names = (*inputs.steps, *inputs.constants)
        if names not in self._compiled:
            cell = GradientSteps(self._root, batch.tables.parameters, tuple(inputs.steps), tuple(inputs.constants))
            self._compiled[names] = runtime.Compiled(cell, self._name)
        return self._compiled[names]
