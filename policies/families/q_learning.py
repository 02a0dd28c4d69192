"""Policies that act by action values and learn them from replay, and their gradient steps."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.buffers.base import buffer_class
from minding.engine.buffers.selectors import uses_priority
from minding.engine.config.named import is_named
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array, LearnOutput, StateDict
from minding.policies.acting.actors import GreedyActor, Network
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import PRIORITY, TRANSITION, GradientStep, Inputs
from minding.policies.learning.target import equalize, make_target, target_schedule
from minding.policies.networks.return_distribution import ReturnDistribution
from minding.policies.ops import primitives
from minding.policies.ops.distributional import beyond, moved, project

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
        loss = primitives.mean(batch["weight"] * loss if self.prioritized else loss)
        metrics = {"loss": loss, "q_value": primitives.mean(value)}
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


_log = logging.getLogger("minding.policies")
# Largest share of the targets' probability that may lie beyond the support before a warning. The arbitrary values of a
# fresh network put a few per cent there.
_MUCH_CLIPPED = 0.2


def draws_by_priority(other: Mapping[str, Any]) -> bool:
    """Whether the configured replay buffer draws by priority, so that learning must return errors as priorities.

    Args:
      other: the section `policy.other` of the configuration.
    """
    kind = other.get("replay")
    if is_named(kind):
        return buffer_class(str(kind)).prioritized
    if kind != "table":
        return bool(kind == "prioritized")
    table = other["table"]
    return uses_priority(table.sampler) or uses_priority(table.remover)


class ActionValuePolicy(BasePolicy):
    """Takes the action of the highest value or, with probability `eps`, a random one; learns from single transitions.

    A subclass defines `make_network`, whose network has a `noise_size`, and `make_learner`.
    """

    sequences = False
    _learn_steps = 0
    _told_clipped = False

    def make_learner(self, net: Any, target: Any, prioritized: bool) -> QLearning:
        """Returns the root cell of an online and a target network, see `QLearning`."""
        raise NotImplementedError

    def make_root(self, net: Any, rng: np.random.Generator) -> QLearning:
        root = self.make_learner(net, self.make_network(rng), draws_by_priority(self.cfg.other))
        equalize(root.net, root.target)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        actor = GreedyActor(self.name, network, self.spec, rng)
        actor.noise_size = self.net.noise_size
        return actor

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def draw(self, batch: IndexedBatch) -> dict[str, Array]:
        """Random numbers of the gradient steps, by name, ``(K, ...)`` each."""
        return {}

    def learn(self, batch: IndexedBatch, progress: float | Array = 0.0) -> LearnOutput:
        output = super().learn(batch, progress)
        share = output.metrics.get(CLIPPED, 0.0)
        if share > _MUCH_CLIPPED and not self._told_clipped:
            self._told_clipped = True
            model = self.cfg.model
            _log.warning(
                "%s: %.0f %% of the targets' probability lies beyond the support from %g to %g and is moved to its "
                "ends, where returns can no longer be told apart: set policy.model.v_min and policy.model.v_max so "
                "that they enclose the discounted returns (reported once; train/%s shows it from now on)",
                self.name, 100 * share, model.v_min, model.v_max, CLIPPED,
            )  # fmt: skip
        return output

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        tau = target_schedule(self.cfg.learn.target, self._learn_steps, len(batch.index))
        self._learn_steps += len(batch.index)
        # Most calls do not move the target; their graph lacks the branch for it and is faster.
        steps = {"tau": tau} if tau.any() else {}
        steps.update(self.draw(batch))
        if self.root.prioritized:
            steps["weight"] = np.ones(batch.index.shape, np.float32) if batch.weight is None else batch.weight
        return Inputs(steps, self.root.optim.rates(progress))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
