"""A policy's gradient steps: inputs by name, and a loop that is compiled for given tables and inputs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.data.batch import VALID, IndexedBatch
from minding.engine.data.rewards import RewardScale
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled, RecompileWarning
from minding.engine.types import Array, LearnOutput
from minding.policies.learning.steps import REWARD_FACTOR, REWARD_OFFSET, SUCCESSOR, GradientLoop, GradientStep


@dataclasses.dataclass(slots=True)
class Inputs:
    """The inputs that a learn call passes to its gradient steps besides the rows.

    Attributes:
      steps: arrays ``(K, ...)`` by name, with an entry per step.
      constants: arrays and numbers by name, the same for all steps.
      counts: for each metric that only some of the steps have, the number of these steps, by name of the metric; the
        other steps return 0 for it.
    """

    steps: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, Array | float] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def rescaled(self, scale: RewardScale) -> Inputs:
        """These inputs with the numbers by which steps rescale rewards; unchanged if rewards stay raw."""
        if scale.kind == "raw":
            return self
        factor, offset = scale.numbers()
        return dataclasses.replace(self, constants={**self.constants, REWARD_FACTOR: factor, REWARD_OFFSET: offset})

    def by_step(self, values: Mapping[str, Array]) -> Inputs:
        """These inputs with some of the constants replaced by values ``(K,)``, one per step."""
        constants = {name: value for name, value in self.constants.items() if name not in values}
        return dataclasses.replace(self, steps={**self.steps, **values}, constants=constants)


class Update:
    """All gradient steps of an iteration in one compiled call.

    The tables are parameters of the compiled graph, so a graph is compiled for one buffer; another buffer causes a
    recompilation, which is reported. Each set of input names has its own graph, and calls of a single step have
    separate graphs.

    Args:
      root: the cell that makes a step.
      name: name of the compiled function, for messages.
    """

    def __init__(self, root: GradientStep, name: str) -> None:
        self._root = root
        self._name = name
        self._metrics = tuple(root.metrics)
        self._tables: DeviceTables | None = None
        self._compiled: dict[tuple[Any, ...], Compiled] = {}

    @property
    def signatures(self) -> int:
        """Number of distinct input signatures compiled for the current tables."""
        return sum(compiled.signatures for compiled in self._compiled.values())

    def __call__(self, batch: IndexedBatch, inputs: Inputs) -> LearnOutput:
        """Makes the gradient steps of a batch.

        Metrics are means over the steps made, including a step that a watched metric stopped. Metrics in `counts` are
        means over the steps that have them, and are left out if no step does.
        """
        if batch.successor is not None:
            inputs = dataclasses.replace(inputs, steps={SUCCESSOR: batch.successor, **inputs.steps})
        if batch.valid is not None:
            inputs = dataclasses.replace(inputs, steps={VALID: batch.valid, **inputs.steps})
        count, values = len(batch.index), [batch.index, *inputs.steps.values()]
        if count == 1:
            values = [x[0] for x in values]
        values += [np.asarray(x, np.float32) if isinstance(x, float) else x for x in inputs.constants.values()]
        variant = (count > 1, *inputs.steps, *inputs.constants)
        if batch.tables is not self._tables or variant not in self._compiled:
            self._add(variant, batch, inputs)
        returned = self._compiled[variant](*[runtime.to_device(x) for x in values])
        total, priorities = returned if self._root.prioritized else (returned, None)
        # `tolist()` is four times as fast as `asnumpy()` on a fresh tensor.
        sums = total.tolist()
        steps = count
        if self._root.watched is not None:
            if count > 1:
                count, exceeded = int(sums[-2]), int(sums[-1])
            else:
                exceeded = int(not sums[self._metrics.index(self._root.watched)] <= np.float32(self._root.limit))
            steps = count - exceeded
        counts = {name: inputs.counts.get(name, count) for name in self._metrics}
        metrics = {name: value / counts[name] for name, value in zip(self._metrics, sums) if counts[name]}
        if priorities is not None:
            priorities = priorities.asnumpy().reshape(batch.index.shape)
        return LearnOutput(metrics, steps, priorities)

    def _add(self, variant: tuple[Any, ...], batch: IndexedBatch, inputs: Inputs) -> None:
        if batch.tables is not self._tables:
            if self._tables is not None and self._tables.origin is not batch.tables.origin:
                warnings.warn(
                    f"{self._name} learns from another buffer than before and is recompiled; use one buffer",
                    RecompileWarning,
                    stacklevel=5,
                )
            self._tables = batch.tables
            self._compiled = {}
        names = (tuple(inputs.steps), tuple(inputs.constants))
        loop = GradientLoop(self._root, batch, *names, len(batch.index) > 1)
        self._compiled[variant] = Compiled(loop, self._name)
