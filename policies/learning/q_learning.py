"""Gradient steps of Q-learning from replay: what algorithms of action values share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import PRIORITY, GradientStep
from minding.policies.learning.target import make_target
from minding.policies.networks.return_distribution import ReturnDistribution
from minding.policies.ops import lean
from minding.policies.ops.categorical import beyond, cross_entropy, moved, project
from minding.policies.ops.values import chosen_atoms, chosen_value, value_loss

RANDOM, NEXT_RANDOM, CHOICE_RANDOM = "random", "next_random", "choice_random"
"""Names of random numbers that a network takes as a last leaf, such as noise: of the online network for `obs`, of the
target for `next_obs`, and of the network that chooses the next action. Without them it does without."""

CLIPPED = "clipped_mass"
"""Metric: the share of the targets' probability that lies beyond the support and is moved to its ends."""

TRANSITION = ("obs", "next_obs", "action", "reward", "terminated", "discount")
"""Fields of a transition."""


class QLearning(GradientStep):
    """Root cell: online and target network, optimizer. A subclass defines `backup` and `errors`.

    Args:
      net, target: networks whose first output is the action values (B, A).
      learn: the configuration `policy.learn`.
      prioritized: steps take importance weights and return priorities.
      fields: names of those of the rows that a step reads.
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
        self.double = bool(learn["double"])
        self.gradient = self.optim.gradient(self.loss, "net")

    # What an algorithm defines.

    def backup(self, batch):
        """What `errors` finds as `target` in its batch, (B, ...); no gradient flows into it."""
        raise NotImplementedError

    def errors(self, batch):
        """The loss of each row, its value of the chosen action, and its priority: float32 (B,) each.

        Args:
          batch: by name `obs`, `action`, and `target`, see `backup`.
        """
        raise NotImplementedError

    # What the algorithms share.

    def seen(self, batch, obs, random):
        """The leaves of an observation and, if the batch has them, random numbers as the last one."""
        return (*batch[obs], batch[random]) if random in batch else batch[obs]

    def loss(self, batch):
        loss, value, priority = self.errors(batch)
        loss = lean.mean(batch["weight"] * loss if self.prioritized else loss)
        metrics = {"loss": loss, "q_value": lean.mean(value)}
        if CLIPPED in batch:
            metrics[CLIPPED] = lean.mean(batch[CLIPPED])
        if self.prioritized:
            metrics[PRIORITY] = ops.stop_gradient(priority)
        return loss, metrics

    def known(self, batch):
        """What `loss` finds in its batch besides the importance weights; no gradient flows into it."""
        return {"obs": self.seen(batch, "obs", RANDOM), "action": batch["action"], "target": self.backup(batch)}

    def construct(self, batch):
        # Target
        rows = self.known(batch)
        # Loss
        if self.prioritized:
            rows["weight"] = batch["weight"]
        (_, metrics), grads = self.gradient(rows)
        # Update
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        if "tau" in batch:
            self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics


class ExpectedQLearning(QLearning):
    """Q-learning of action values alone: y = R + gamma^k (1 - terminated) Q_target(s', a*), with the Huber loss."""

    def backup(self, batch):
        next_q = self.target(self.seen(batch, "next_obs", NEXT_RANDOM))[0]
        if self.double:
            choosing = self.net(self.seen(batch, "next_obs", CHOICE_RANDOM))[0]
            next_value = chosen_value(next_q, ops.Argmax(-1)(choosing))
        else:
            next_value = lean.largest(next_q)
        return batch["reward"] + batch["discount"] * (1.0 - batch["terminated"]) * next_value

    def errors(self, batch):
        return value_loss(self.net(batch["obs"])[0], batch["action"], batch["target"])


class DistributionalQLearning(QLearning):
    """The same for networks of return distributions, see `networks.return_distribution`."""

    def chosen(self, batch):
        """Atoms of the chosen actions, float32 (B, N)."""
        return chosen_atoms(self.net.atoms(batch["obs"]), batch["action"])

    def next_atoms(self, batch):
        """Atoms of the target network for the greedy next actions, float32 (B, N): those of the highest mean by the
        online network (double), else by the target network."""
        atoms = self.target.atoms(self.seen(batch, "next_obs", NEXT_RANDOM))
        if self.double:
            values = self.net(self.seen(batch, "next_obs", CHOICE_RANDOM))[0]
        else:
            values = self.target.values(atoms, batch["next_obs"])
        return chosen_atoms(atoms, ops.Argmax(-1)(values))

    def returns(self, batch, atoms):
        """R + gamma^k (1 - terminated) x for each x of atoms (B, N) or (1, N): float32 (B, N)."""
        decay = batch["discount"] * (1.0 - batch["terminated"])
        return ops.ExpandDims()(batch["reward"], -1) + ops.ExpandDims()(decay, -1) * atoms


class CategoricalQLearning(DistributionalQLearning):
    """Q-learning of categorical return distributions (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887,
    algorithm 1); `net.mean` is a `SupportMean`."""

    metrics = (*QLearning.metrics, CLIPPED)

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.low, self.spacing = net.mean.low, net.mean.spacing
        self.places = ms.Tensor(np.arange(net.mean.count, dtype=np.float32))

    def known(self, batch):
        probability = ops.Softmax(-1)(self.next_atoms(batch))
        decay = batch["discount"] * (1.0 - batch["terminated"])
        places = moved(batch["reward"], decay, self.low, self.spacing, self.places)
        return {
            "obs": self.seen(batch, "obs", RANDOM),
            "action": batch["action"],
            "target": project(probability, places, self.places),
            CLIPPED: beyond(probability, places, self.places),
        }

    def errors(self, batch):
        logits = self.chosen(batch)
        # The relative entropy is the priority: rows that are predicted right have none, however uncertain they are.
        loss, priority = cross_entropy(logits, batch["target"])
        return loss, self.net.mean(ops.stop_gradient(logits)), priority
