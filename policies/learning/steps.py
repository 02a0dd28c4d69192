"""The part of gradient steps that an algorithm defines: the cell of a step, and the inputs of a call besides the rows.

`learning.update` repeats the step in one compiled function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from minding.engine.data.rewards import RewardScale
from minding.engine.process.runtime import nn
from minding.engine.types import Array
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.ops import primitives

PRIORITY = "priority"
"""Name under which `GradientStep` returns priorities."""
ALL_ROWS = "all_rows"
"""Name of the input with the indices of all rows, see `GradientStep.proximal`."""
SUCCESSOR = "successor"
"""Name of the input with the indices of the rows' successors, if the rows do not hold the successors themselves."""
SHIFT = "shift"
"""Name of the input with the shifts of images, see `RandomShift`."""
REWARD_FACTOR, REWARD_OFFSET = "reward_factor", "reward_offset"
"""Names of the inputs by which the rewards of rows are rescaled, see `engine.data.rewards.RewardScale`."""


class GradientStep(nn.Cell):
    """Base of the cells that hold an algorithm's networks and optimizers. A subclass defines `construct`.

    Attributes:
      metrics: names of the numbers that `construct` returns, see `named`.
      prioritized: whether `construct` also returns one priority per row, under the name `PRIORITY`.
      proximal_names: names of the values that `proximal` returns.
      has_action_values: whether `action_value` is defined.
      watched: name of the metric that ends the steps of a call once it exceeds `limit`; the step that finds this
        returns its metrics, but changes nothing. None: no metric ends the steps.
      limit: limit of the watched metric.
      augment: the `RandomShift` of images in rows; None: images stay as they are.
    """

    metrics: tuple[str, ...] = ()
    proximal_names: tuple[str, ...] = ()
    prioritized = False
    has_action_values = False
    watched: str | None = None
    limit = 0.0
    augment: Any

    def construct(self, batch):
        """Makes one gradient step and returns the metrics by name.

        Args:
          batch: by name: the row indices `index`, the fields of these rows, the policy's inputs for this step
            (`weight`, noise, ...), and numbers that are the same for all steps of the call, (1,) each. If some rows are
            padding of the minibatch, `VALID` is 0 for them: use `ops.policy_gradient.row_mean` for means over rows.
        """
        raise NotImplementedError

    def named(self, values):
        """The first of the metrics by name, from a tuple of their values in the order of `metrics`."""
        return primitives.named(self.metrics[: len(values)], values)

    def action_value(self, action, obs):
        """Q(s, a) under the current parameters, float32 (B,), for evaluation on recorded data: actions (B, *shape) in
        the policy's own units, leaves (B, ...) of the observations."""
        raise NotImplementedError

    def proximal(self, rows):
        """Values of all R rows under the parameters before the first step, by name, (R,) each, for the batches of
        `construct`, under the names `proximal_names`. Called if the policy passes an input `ALL_ROWS`, int32 with the R
        indices in order, as `index` of `rows`, beside their fields."""
        raise NotImplementedError


class NetworkStep(GradientStep):
    """Base of the cells with one network and one loss. A subclass defines `loss`.

    Args:
      net: the network.
      groups: the groups of its parameters by name: one group ``net``, unless a subclass defines `step`.

    Attributes:
      metrics: names of the metrics of the loss, then ``grad_norm``.
    """

    def __init__(self, net: Any, groups: Mapping[str, Group]) -> None:
        super().__init__()
        self.net = net
        self.optim = Optimizer(**groups)
        self.gradient = self.optim.gradient(self.loss, *groups)

    def loss(self, batch):
        """The loss of a step's batch, and its metrics by name; no gradient may flow into targets."""
        raise NotImplementedError

    def construct(self, batch):
        return self.step(batch)

    def step(self, batch):
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.move(grads, batch, metrics)
        return metrics

    def move(self, grads, batch, metrics):
        """Updates the network; returns the norm of the gradient."""
        return self.optim({"net": grads}, batch, metrics)["net"]


@dataclasses.dataclass(slots=True)
class Inputs:
    """The inputs that a learn call passes to its gradient steps besides the rows.

    Attributes:
      steps: arrays ``(K, ...)`` by name, with an entry per step.
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
