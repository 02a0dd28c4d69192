"""The gradient steps of a learn call, all in one compiled function.

`Rows` gathers the rows of a step, a `GradientStep` makes it, `GradientLoop` repeats it, `Update` compiles the loop for
given tables and inputs, and `LearnGuard` handles calls that end in NaN or infinity.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.console import Throttle
from minding.engine.data.batch import OBSERVATIONS, VALID, Column, IndexedBatch, RowLayout
from minding.engine.errors import NonFiniteError
from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled, RecompileWarning
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array, LearnOutput, StateDict, Stateful
from minding.policies.kernels import kernel, usable
from minding.policies.learning.optim import SHARE
from minding.policies.learning.steps import (
    ALL_ROWS,
    PRIORITY,
    REWARD_FACTOR,
    REWARD_OFFSET,
    SHIFT,
    SUCCESSOR,
    GradientStep,
    Inputs,
)
from minding.policies.ops import primitives


class Rows(nn.Cell):
    """Gathers rows of the tables and splits them into fields."""

    def __init__(self, layout: RowLayout, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        trees = [layout.tree(name) for name in names]
        columns = [column for tree in trees for column in tree]
        stops = list(itertools.accumulate(len(tree) for tree in trees))
        self.starts, self.stops = [0, *stops[:-1]], stops
        # Encoders take a tuple of leaves even if the observation has only one.
        self.is_leaf = [name in OBSERVATIONS and len(tree) == 1 for name, tree in zip(names, trees, strict=True)]
        self.is_plain = [name not in OBSERVATIONS for name in names]
        self.table = [c.table for c in columns]
        self.linked = [c.linked for c in columns]
        self.shape = [tuple(c.shape) for c in columns]
        numbers = [c for c in columns if c.table == 0]
        # The index of each field among the fields of table 0.
        self.place = [numbers.index(c) if c.table == 0 else -1 for c in columns]
        self.numbers = (_FusedFields if usable() and len(numbers) > 1 else _Fields)(numbers)

    def construct(self, index, successor, tables):
        """Returns the fields of the rows with these indices, int32 (B,) or of any shape with B entries, in the order of
        `names`, each (B, *shape), and `OBSERVATIONS` as tuples of leaves."""
        if index.ndim > 1:
            index, successor = index.reshape((-1,)), successor.reshape((-1,))
        numbers = self.numbers(index, primitives.item(tables, 0))
        columns: Any = ()
        for k in range(len(self.place)):
            if self.place[k] >= 0:
                columns = (*columns, primitives.item(numbers, self.place[k]))
            else:
                image = ops.gather(tables[self.table[k]], successor if self.linked[k] else index, 0)
                columns = (*columns, image.reshape((-1, *self.shape[k])))
        fields: Any = ()
        for k in range(len(self.names)):
            if self.is_plain[k]:
                fields = (*fields, primitives.item(columns, self.starts[k]))
            elif self.is_leaf[k]:
                fields = (*fields, (primitives.item(columns, self.starts[k]),))
            else:
                fields = (*fields, columns[self.starts[k] : self.stops[k]])
        return fields


class _Fields(nn.Cell):
    """Fields of one table of numbers."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.count = len(columns)
        self.start = [c.start for c in columns]
        self.stop = [c.stop for c in columns]
        self.shape = [tuple(c.shape) for c in columns]
        self.integer = [c.dtype == "int32" for c in columns]

    def construct(self, index, table):
        rows = ops.gather(table, index, 0)
        fields = []
        for k in range(self.count):
            if len(self.shape[k]) == 0:
                value = rows[:, self.start[k]]
            else:
                # Slicing images takes as long as a convolution.
                whole = self.stop[k] - self.start[k] == rows.shape[1]
                value = rows if whole else rows[:, self.start[k] : self.stop[k]]
                if len(self.shape[k]) > 1:
                    value = value.reshape((-1, *self.shape[k]))
            if self.integer[k]:
                value = ops.cast(value, ms.int32)
            fields.append(value)
        return tuple(fields)


class _FusedFields(nn.Cell):
    """`_Fields` in one kernel, for two fields or more."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.start = ms.Tensor(np.array([c.start for c in columns], np.int32))
        self.take_fields = _fused_take_fields(tuple((tuple(c.shape), c.dtype) for c in columns))

    def construct(self, index, table):
        return self.take_fields(index, self.start, table)


@functools.cache
def _fused_take_fields(fields: tuple[tuple[tuple[int, ...], str], ...]) -> Any:
    """The primitive ``(index, start of each field in a row, table) -> fields``; `fields`: shape and dtype of each."""
    dtypes = tuple(ms.int32 if dtype == "int32" else ms.float32 for _, dtype in fields)
    return kernel(
        "take_fields",
        lambda index, start, table: tuple((index[0], *shape) for shape, _ in fields),
        lambda index, start, table: dtypes,
    )


class GradientLoop(nn.Cell):
    """The gradient steps of a call, one after another, compiled for tables and inputs."""

    def __init__(
        self,
        root: GradientStep,
        fields: Sequence[str],
        batch: IndexedBatch,
        steps: Sequence[str],
        constants: Sequence[str],
        loop: bool,
    ) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.root = root
        self.rows = Rows(batch.layout, fields)
        self.tables = ms.ParameterTuple(batch.tables.parameters)
        inputs = ("index", *steps, *constants)
        # Positions among the inputs; 0, the position of the index, if there is no such input.
        self.all_rows, self.successor = (inputs.index(name) if name in inputs else 0 for name in (ALL_ROWS, SUCCESSOR))
        self.proximal_names = root.proximal_names if self.all_rows else ()
        self.row_names = (*fields, "index")
        self.names = (*fields, *inputs, *self.proximal_names)
        self.rescales, self.moves_images = REWARD_FACTOR in inputs, SHIFT in inputs
        self.learners = root.optim.learners if hasattr(root, "optim") else 1
        self.num_steps = 1 + len(steps) if loop else 0
        self.metrics, self.prioritized = root.metrics, root.prioritized
        self.watched, self.limit = root.watched, root.limit
        # Initial values of the loop: number of the step, watched metric, sums of the metrics.
        zeros = (np.int32(0), np.float32(0), np.zeros(len(self.metrics), np.float32))
        self.zeros = tuple(ms.Tensor(x) for x in zeros)

    @ms.jit
    def construct(self, *inputs):
        """Makes the steps; `inputs`: the row indices, int32 (K, B) or (K, T, N), then the inputs `steps`, then the
        inputs `constants`."""
        # When a graph is freed, the compiler keeps more memory for a compiled function than for a method it calls.
        return self.all_steps(inputs)

    def all_steps(self, inputs):
        """Makes all steps of a call; returns the same as `construct`."""
        proximal: Any = ()
        if self.all_rows:
            rows = primitives.item(inputs, self.all_rows)
            proximal = self.root.proximal(primitives.named(self.row_names, (*self.rows(rows, rows, self.tables), rows)))
        if not self.num_steps:
            # For the same reason the root is not called as a cell, which would keep another 70 KB.
            batch = self.batch(inputs, proximal)
            returned = self.root.construct(batch)
            total = self.over_all_learners(self.share(self.stacked(returned), batch))
            return (total, returned[PRIORITY]) if self.prioritized else total
        i, watched, total = self.zeros
        index = primitives.item(inputs, 0)
        priorities = ops.Cast()(index, ms.float32) if self.prioritized else ()
        while self.continues(i, index.shape[0], watched):
            values: Any = ()
            for k in range(len(inputs)):
                x = primitives.item(inputs, k)
                values = (*values, primitives.entry(x, i) if k < self.num_steps else x)
            batch = self.batch(values, proximal)
            returned = self.root.construct(batch)
            total = total + self.share(self.stacked(returned), batch)
            if self.watched is not None:
                watched = returned[self.watched]
            if self.prioritized:
                priorities = primitives.with_entry(priorities, i, returned[PRIORITY])
            i = i + 1
        total = self.over_all_learners(total)
        if self.watched is not None:
            within = ops.Cast()(watched <= self.limit, ms.float32)
            total = ops.Concat()((total, primitives.stacked((ops.Cast()(i, ms.float32), 1.0 - within))))
        return (total, priorities) if self.prioritized else total

    def continues(self, i, count, watched):
        if self.watched is None:
            return i < count
        return i < count and watched <= self.limit

    def batch(self, values, proximal):
        """The batch of a step: fields and inputs by name."""
        index = primitives.item(values, 0)
        successor = primitives.item(values, self.successor)
        chosen: Any = ()
        if len(proximal) > 0:
            flat = index.reshape((-1,)) if index.ndim > 1 else index
            for name in self.proximal_names:
                chosen = (*chosen, ops.gather(proximal[name], flat, 0))
        batch = primitives.named(self.names, (*self.rows(index, successor, self.tables), *values, *chosen))
        if self.rescales:
            batch["reward"] = batch["reward"] * batch[REWARD_FACTOR] + batch[REWARD_OFFSET]
        if self.moves_images:
            batch["obs"] = self.root.augment(batch["obs"], batch[SHIFT], 0)
            batch["next_obs"] = self.root.augment(batch["next_obs"], batch[SHIFT], 2)
        return batch

    def share(self, metrics, batch):
        """The metrics of a step, times this learner's share."""
        return metrics if self.learners == 1 else metrics * batch[SHARE]

    def over_all_learners(self, total):
        return total if self.learners == 1 else self.root.optim.all_reduce(total)

    def stacked(self, returned):
        values: Any = ()
        for name in self.metrics:
            values = (*values, returned[name])
        return primitives.stacked(values)


class Update:
    """All gradient steps of an iteration in one compiled call.

    The tables are parameters of the compiled graph, so a graph is compiled for one buffer; another buffer causes a
    recompilation, which is reported. Each set of input names and each length of sequences has its own graph (more
    than `MAX_LENGTHS` are reported), and calls of a single step have separate graphs. After a batch with weights of
    rows (`IndexedBatch.valid`), all others have weights, too.
    """

    def __init__(self, root: GradientStep, name: str, fields: Sequence[str]) -> None:
        self._root, self._name, self._fields = root, name, tuple(fields)
        self._tables: DeviceTables | None = None
        self._compiled: dict[tuple[Any, ...], Compiled] = {}
        self._small: dict[tuple[Any, ...], tuple[Array, Any]] = {}
        self._weighted = False

    @property
    def signatures(self) -> int:
        """Number of distinct input signatures compiled for the current tables."""
        return sum(compiled.signatures for compiled in self._compiled.values())

    def __call__(self, batch: IndexedBatch, inputs: Inputs, before: Callable[[], None] | None = None) -> LearnOutput:
        """Makes the gradient steps of a batch. Metrics are means over the steps made, including a step that a
        watched metric stopped. Metrics in `counts` are means over the steps that have them, and are left out if no
        step does."""
        if batch.successor is not None:
            inputs = dataclasses.replace(inputs, steps={SUCCESSOR: batch.successor, **inputs.steps})
        self._weighted = self._weighted or batch.valid is not None
        if self._weighted:
            # Weights of 1 change no bit, and save the compilation of a second graph for batches without weights.
            valid = np.ones(batch.index.shape, np.float32) if batch.valid is None else batch.valid
            inputs = dataclasses.replace(inputs, steps={VALID: valid, **inputs.steps})
        count, values = len(batch.index), [batch.index, *inputs.steps.values()]
        if count == 1:
            values = [x[0] for x in values]
        values += [np.asarray(x, np.float32) if isinstance(x, float) else x for x in inputs.constants.values()]
        variant = (count > 1, batch.index.shape[1:-1], *inputs.steps, *inputs.constants)
        if batch.tables is not self._tables or variant not in self._compiled:
            self._add(variant, batch, inputs)
        tensors = [self._on_device(variant, place, x) for place, x in enumerate(values)]
        if before is not None:
            self._compiled[variant].compile(*tensors)
            before()
        returned = self._compiled[variant](*tensors)
        total, priorities = returned if self._root.prioritized else (returned, None)
        # `tolist()` is four times as fast as `asnumpy()` on a fresh tensor.
        sums = total.tolist()
        steps = count
        if self._root.watched is not None:
            if count > 1:
                count, exceeded = int(sums[-2]), int(sums[-1])
            else:
                exceeded = int(not sums[self._root.metrics.index(self._root.watched)] <= np.float32(self._root.limit))
            steps = count - exceeded
        counts = {name: inputs.counts.get(name, count) for name in self._root.metrics}
        metrics = {name: value / counts[name] for name, value in zip(self._root.metrics, sums) if counts[name]}
        if priorities is not None:
            priorities = priorities.asnumpy().reshape(batch.index.shape)
        return LearnOutput(metrics, steps, priorities)

    def _on_device(self, variant: tuple[Any, ...], place: int, x: Array) -> Any:
        """The Tensor of an input; on CPU a small one is written into the Tensor of the call before, which takes less
        time than a new one."""
        if x.nbytes > _SMALL or runtime.device() != "CPU":
            return runtime.to_device(x)
        key = (*variant, place, x.shape, x.dtype)
        if key not in self._small:
            array = np.array(x, ndmin=1, order="C")
            self._small[key] = array, runtime.to_device(array)
        array, tensor = self._small[key]
        array[...] = x
        return tensor

    def _add(self, variant: tuple[Any, ...], batch: IndexedBatch, inputs: Inputs) -> None:
        if batch.tables is not self._tables:
            if self._tables is not None and self._tables.origin is not batch.tables.origin:
                warnings.warn(
                    f"{self._name} learns from another buffer than before and is recompiled; give it one buffer, or "
                    "one trainer if it learns from rollouts",
                    RecompileWarning,
                    stacklevel=5,
                )
            self._tables = batch.tables
            self._compiled = {}
        lengths = {variant[1], *(length for _, length, *_ in self._compiled)}
        if len(lengths) > MAX_LENGTHS:
            warnings.warn(
                f"{self._name} learns from sequences of another length than before and is recompiled; keep to "
                f"{MAX_LENGTHS} lengths",
                RecompileWarning,
                stacklevel=5,
            )
        names = (tuple(inputs.steps), tuple(inputs.constants))
        loop = GradientLoop(self._root, self._fields, batch, *names, len(batch.index) > 1)
        self._compiled[variant] = Compiled(loop, self._name)


MAX_LENGTHS = 3
"""Lengths of sequences in one run: whole, half and quarter episodes (`UniformWindows`)."""
_SMALL = 1 << 12
"""Bytes up to which an input is written into the Tensor of the call before."""
MAX_SKIPS_IN_A_ROW = 100
_log = logging.getLogger("minding.policies")


class LearnGuard:
    """Checks the metrics and parameters after every learn call of a policy.

    With ``stop``, a metric that is not finite ends the run. With ``skip``, the call is undone as if it had never been
    made, even if only a parameter is not finite; each call then costs a copy of the state. After `MAX_SKIPS_IN_A_ROW`
    undone calls in a row, the run ends nevertheless.
    """

    def __init__(self, name: str, on_nan: str, policy: Stateful) -> None:
        self._name = name
        self._skips = on_nan == "skip"
        self._policy = policy
        self._in_a_row = 0
        self._warnings = Throttle()

    def state(self) -> StateDict | None:
        """The state before the call, for `checked`; None in stop mode."""
        return self._policy.state_dict() if self._skips else None

    def checked(self, output: LearnOutput, batch: IndexedBatch, before: StateDict | None) -> LearnOutput:
        """Returns the output of a call; in skip mode an undone call has the metric `skipped` = 1 and 0 steps."""
        metrics = output.metrics
        bad = (f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value))
        found = next(bad, None)
        if before is None:
            if found is not None:
                raise self._error(f"{found} after this update", batch, metrics)
            return output
        params = self._policy.state_dict()["params"]
        unfit = (name for name, value in params.items() if not np.isfinite(value).all())
        found = found or next((f"a number in parameter {name} is NaN or infinite" for name in unfit), None)
        if found is None:
            self._in_a_row = 0
            return dataclasses.replace(output, metrics={**metrics, "skipped": 0.0})
        self._policy.load_state_dict(before)
        self._in_a_row += 1
        if self._in_a_row >= MAX_SKIPS_IN_A_ROW:
            raise self._error(f"{found} after each of the last {MAX_SKIPS_IN_A_ROW} updates", batch, metrics)
        if self._warnings.due():
            _log.warning("%s: %s after this update: it was undone (learn.on_nan=skip)", self._name, found)
        return LearnOutput({"skipped": 1.0}, steps=0)

    def _error(self, what: str, batch: IndexedBatch, metrics: Mapping[str, float]) -> NonFiniteError:
        # The rows of the batch by field, and which of them each gradient step used.
        fields, index = batch.distinct()
        return NonFiniteError(
            f"{self._name}: {what}: lower policy.learn.learning_rate, or look for huge rewards and observations",
            {**fields, "index": index},
            dict(metrics),
        )
