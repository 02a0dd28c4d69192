"""The compiled gradient steps of one learn call: the base of an algorithm's step, and the loop over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.learning.rows import Rows
from minding.policies.ops import lean

TRANSITION = ("obs", "next_obs", "action", "reward", "terminated", "discount")
"""Fields of a transition."""
PRIORITY = "priority"
"""Name under which `GradientStep` returns priorities."""
ALL_ROWS = "all_rows"
"""Name of the input with the indices of all rows, see `GradientStep.present`."""


SUCCESSOR = "successor"
"""Name of the input with the indices of the rows' successors, if the rows do not hold the successors themselves."""
REWARD_FACTOR, REWARD_OFFSET = "reward_factor", "reward_offset"
"""Names of the inputs by which the rewards of rows are rescaled, see `engine.data.rewards.RewardScale`."""


class GradientStep(nn.Cell):
    """Base of the cells that hold an algorithm's networks and optimizers. A subclass defines `construct`.

    Args:
      fields: names of the row fields that `construct` reads.

    Attributes:
      metrics: names of the numbers that `construct` returns.
      prioritized: whether `construct` also returns one priority per row, under the name `PRIORITY`.
      present_names: names of the values that `present` returns.
      has_action_values: whether `action_value` is defined.
      watched: name of the metric that ends the steps of a call once it exceeds `limit`; the step that finds this
        returns its metrics, but changes nothing. None: no metric ends the steps.
      limit: limit of the watched metric.
    """

    metrics: tuple[str, ...] = ()
    present_names: tuple[str, ...] = ()
    prioritized = False
    has_action_values = False
    watched: str | None = None
    limit = 0.0

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__()
        self.fields = tuple(fields)

    def construct(self, batch):
        """Makes one gradient step and returns the metrics by name.

        Args:
          batch: by name: the row indices `index`, the fields of these rows, the policy's inputs for this step
            (`weight`, noise, ...), and numbers that are the same for all steps of the call, (1,) each. If some rows are
            padding of the minibatch, `VALID` is 0 for them: use `ops.policy_gradient.row_mean` for means over rows.
        """
        raise NotImplementedError

    def action_value(self, action, obs):
        """Q(s, a) under the current parameters, float32 (B,), for evaluation on recorded data.

        Args:
          action: actions (B, *shape), in the policy's own units.
          obs: leaves of the observations, (B, ...) each.
        """
        raise NotImplementedError

    def present(self, rows):
        """Values of all R rows under the parameters before the first step, by name, (R,) each.

        This is called if the policy passes an input `ALL_ROWS`, int32 with the R indices in order. The batch of
        `construct` then contains the values of its own rows, under the names `present_names`.

        Args:
          rows: by name: the input `ALL_ROWS` as `index`, and the fields of these rows.
        """
        raise NotImplementedError


class ProximalStep(GradientStep):
    """Base of steps that end once the policy has moved too far from the policy that collected the rows.

    A subclass has the optimizer `optim` with the group ``net``, and the metrics ``loss`` and ``approx_kl``.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__(fields)
        self.nothing = ms.Tensor(np.float32(0.0))

    def watch(self, target_kl: float | None) -> None:
        """Ends the steps of a call at a divergence above 1.5 times `target_kl`; None or 0: makes all steps."""
        if target_kl:
            self.watched, self.limit = "approx_kl", 1.5 * target_kl

    def move(self, grads, batch, metrics):
        """Updates the weights unless the divergence in `metrics` exceeds the limit.

        Returns:
          The norm of the gradient; 0 if the weights were not updated.
        """
        if self.watched is None:
            return self.move_at_once(grads, batch, metrics)
        norm = self.nothing
        if metrics["approx_kl"] <= self.limit:
            norm = self.move_at_once(grads, batch, metrics)
        return norm

    def move_at_once(self, grads, batch, metrics):
        """Updates the weights; returns the norm of the gradient."""
        return self.optim({"net": grads}, batch, (metrics["loss"], metrics["approx_kl"]))["net"]


class GradientLoop(nn.Cell):
    """The gradient steps of a call, one after another, compiled for tables and inputs.

    Args:
      root: the cell that makes a step.
      batch: a batch with the layout and the tables of the rows, which may have more fields than the root reads.
      steps: names of the inputs that have an entry per step.
      constants: names of the inputs that are the same for all steps.
      loop: whether a call makes several steps. Otherwise inputs have no axis of steps, and the graph has no loop, which
        makes it start faster.
    """

    def __init__(
        self, root: GradientStep, batch: IndexedBatch, steps: Sequence[str], constants: Sequence[str], loop: bool
    ) -> None:
        # Without a prefix, parameters keep the names that they have under the root.
        super().__init__(auto_prefix=False)
        self.root = root
        self.rows = Rows(batch.layout, root.fields)
        self.tables = ms.ParameterTuple(batch.tables.parameters)
        inputs = ("index", *steps, *constants)
        # Positions among the inputs; 0, the position of the index, if there is no such input.
        self.all_rows, self.successor = (inputs.index(name) if name in inputs else 0 for name in (ALL_ROWS, SUCCESSOR))
        self.present_names = root.present_names if self.all_rows else ()
        self.row_names = (*root.fields, "index")
        self.names = (*root.fields, *inputs, *self.present_names)
        self.rescales = REWARD_FACTOR in inputs
        self.num_steps = 1 + len(steps) if loop else 0
        self.metrics, self.prioritized = root.metrics, root.prioritized
        self.watched, self.limit = root.watched, root.limit
        # Initial values of the loop: number of the step, watched metric, sums of the metrics.
        zeros = (np.int32(0), np.float32(0), np.zeros(len(self.metrics), np.float32))
        self.zeros = tuple(ms.Tensor(x) for x in zeros)

    @ms.jit
    def construct(self, *inputs):
        """Makes the steps.

        Args:
          inputs: the row indices, int32 (K, B) or (K, T, N), then the inputs `steps`, then the inputs `constants`.

        Returns:
          The sums of the metrics, in their order. If a metric is watched and there is a loop, they are followed by the
          number of steps in the sums and by the number of these (0 or 1) that exceeded the limit. With priorities, a
          pair of this array and the priorities, shaped like the index.
        """
        # When a graph is freed, the compiler keeps more memory for a compiled function than for a method it calls.
        return self.all_steps(inputs)

    def all_steps(self, inputs):
        """Makes all steps of a call; returns the same as `construct`."""
        present: Any = ()
        if self.all_rows:
            rows = lean.item(inputs, self.all_rows)
            present = self.root.present(lean.named(self.row_names, (*self.rows(rows, rows, self.tables), rows)))
        if not self.num_steps:
            # For the same reason the root is not called as a cell, which would keep another 70 KB.
            returned = self.root.construct(self.batch(inputs, present))
            total = self.stacked(returned)
            return (total, returned[PRIORITY]) if self.prioritized else total
        i, watched, total = self.zeros
        index = lean.item(inputs, 0)
        priorities = ops.Cast()(index, ms.float32) if self.prioritized else ()
        while self.goes_on(i, index.shape[0], watched):
            values: Any = ()
            for k in range(len(inputs)):
                x = lean.item(inputs, k)
                values = (*values, lean.entry(x, i) if k < self.num_steps else x)
            returned = self.root.construct(self.batch(values, present))
            total = total + self.stacked(returned)
            if self.watched is not None:
                watched = returned[self.watched]
            if self.prioritized:
                priorities = lean.with_entry(priorities, i, returned[PRIORITY])
            i = i + 1
        if self.watched is not None:
            within = ops.Cast()(watched <= self.limit, ms.float32)
            total = ops.Concat()((total, lean.stacked((ops.Cast()(i, ms.float32), 1.0 - within))))
        return (total, priorities) if self.prioritized else total

    def goes_on(self, i, count, watched):
        if self.watched is None:
            return i < count
        return i < count and watched <= self.limit

    def batch(self, values, present):
        """The batch of a step: fields and inputs by name."""
        index = lean.item(values, 0)
        successor = lean.item(values, self.successor)
        chosen: Any = ()
        if len(present) > 0:
            flat = index.reshape((-1,)) if index.ndim > 1 else index
            for name in self.present_names:
                chosen = (*chosen, ops.gather(present[name], flat, 0))
        batch = lean.named(self.names, (*self.rows(index, successor, self.tables), *values, *chosen))
        if self.rescales:
            batch["reward"] = batch["reward"] * batch[REWARD_FACTOR] + batch[REWARD_OFFSET]
        return batch

    def stacked(self, returned):
        values: Any = ()
        for name in self.metrics:
            values = (*values, returned[name])
        return lean.stacked(values)
