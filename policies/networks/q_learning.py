"""Gradient steps of Q-learning from replay: what algorithms of action values share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minding.engine.process.runtime import nn, ops
from minding.policies.networks.optim import Group, Optimizer
from minding.policies.networks.steps import PRIORITY, GradientStep
from minding.policies.networks.target import make_target
from minding.policies.ops import lean
from minding.policies.ops.values import chosen_atoms


class QLearning(GradientStep):
    """Root cell: online and target network, optimizer. A subclass defines `backup` and `errors`.

    Args:
      net, target: networks whose first output is the action values (B, A).
      learn: the configuration `policy.learn`.
      prioritized: steps take importance weights and return priorities.
    """

    metrics = ("loss", "q_value", "grad_norm")

    def __init__(self, net: nn.Cell, target: nn.Cell, learn: Mapping[str, Any], prioritized: bool = False) -> None:
        super().__init__(["obs", "next_obs", "action", "reward", "terminated", "discount"])
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

    def loss(self, batch):
        loss, value, priority = self.errors(batch)
        loss = lean.mean(batch["weight"] * loss if self.prioritized else loss)
        metrics = {"loss": loss, "q_value": lean.mean(value)}
        if self.prioritized:
            metrics[PRIORITY] = ops.stop_gradient(priority)
        return loss, metrics

    def construct(self, batch):
        # Target
        rows = {"obs": batch["obs"], "action": batch["action"], "target": self.backup(batch)}
        # Loss
        if self.prioritized:
            rows["weight"] = batch["weight"]
        (_, metrics), grads = self.gradient(rows)
        # Update
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        if "tau" in batch:
            self.move_target(batch["tau"], metrics["grad_norm"])
        return metrics


class DistributionalQLearning(QLearning):
    """The same for networks of return distributions, see `networks.return_distribution`."""

    def chosen(self, batch):
        """Atoms of the chosen actions, float32 (B, N)."""
        return chosen_atoms(self.net.atoms(batch["obs"]), batch["action"])

    def next_atoms(self, batch):
        """Atoms of the target network for the greedy next actions, float32 (B, N): those of the highest mean by the
        online network (double), else by the target network."""
        atoms = self.target.atoms(batch["next_obs"])
        if self.double:
            values = self.net(batch["next_obs"])[0]
        else:
            values = self.target.values(atoms, batch["next_obs"])
        return chosen_atoms(atoms, ops.Argmax(-1)(values))

    def returns(self, batch, atoms):
        """R + gamma^k (1 - terminated) x for each x of atoms (B, N) or (1, N): float32 (B, N)."""
        decay = batch["discount"] * (1.0 - batch["terminated"])
        return ops.ExpandDims()(batch["reward"], -1) + ops.ExpandDims()(decay, -1) * atoms
