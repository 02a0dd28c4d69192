"""Gradient steps of Q-learning from replay, shared by algorithms of action values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import PRIORITY, TRANSITION, GradientStep
from minding.policies.learning.target import make_target
from minding.policies.networks.return_distribution import ReturnDistribution
from minding.policies.ops import lean
from minding.policies.ops.categorical import beyond, moved, project

CLIPPED = "clipped_mass"
"""Metric: the share of the targets' probability that lies beyond the support and is moved to its ends."""


class QLearning(GradientStep):
    """Root cell: online network, target network and optimizer. A subclass defines `loss`.

    Args:
      net, target: networks whose first output is the action values (B, A).
      learn: the configuration `policy.learn`.
      prioritized: whether steps take importance weights and return priorities.
      fields: names of the row fields that a step reads.
    """

    metrics: tuple[str, ...] = ("loss", "q_value", "grad_norm")

    def __init__(
        self,
        net: nn.Cell,
        target: nn.Cell,
        learn: Mapping[str, Any],
        prioritized: bool = False,
        fields: Sequence[str] = TRANSITION,
    ) -> None:
        super().__init__(fields)
        self.prioritized = prioritized
        self.net = net
        self.target = target
        self.optim = Optimizer(net=Group.of(net, learn, max_grad_norm=learn["grad_norm"]))
        self.move_target = make_target(net, target, self.optim.block("net"), learn["target"]["kind"])
        self.double = bool(learn.get("double"))
        self.gradient = self.optim.gradient(self.loss, "net")

    # Defined by the algorithm.

    def loss(self, batch):
        """The loss of a step's batch and the metrics by name, see `averaged`; no gradient may flow into the target."""
        raise NotImplementedError

    # Shared by the algorithms.

    def averaged(self, batch, loss, value, priority):
        """The values that `loss` returns: means over the rows of the batch.

        Args:
          batch: the batch that `loss` was given.
          loss: loss of each row, float32 (B,).
          value: value of each row's chosen action, float32 (B,).
          priority: priority of each row, float32 (B,).
        """
        loss = lean.mean(batch["weight"] * loss if self.prioritized else loss)
        metrics = {"loss": loss, "q_value": lean.mean(value)}
        if self.prioritized:
            metrics[PRIORITY] = ops.stop_gradient(priority)
        return loss, metrics

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        # Update
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        if "tau" in batch:
            self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics


class CategoricalQLearning(QLearning):
    """`QLearning` for networks whose atoms are logits of a distribution over a support (`mean` is a `SupportMean`)."""

    metrics = (*QLearning.metrics, CLIPPED)

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.low, self.spacing = net.mean.low, net.mean.spacing
        self.places = ms.Tensor(np.arange(net.mean.count, dtype=np.float32))

    def projected(self, batch, probability):
        """The target distribution (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887, algorithm 1).

        Args:
          batch: batch with `reward`, `discount` and `terminated`.
          probability: probabilities of the next actions' atoms, float32 (B, N).
        Returns:
          (m, float32 (B, N); the probability beyond the support, float32 (B,)).
        """
        decay = batch["discount"] * (1.0 - batch["terminated"])
        places = moved(batch["reward"], decay, self.low, self.spacing, self.places)
        return project(probability, places, self.places), beyond(probability, places, self.places)
