"""Gradient steps of deterministic actors with twin critics and delayed updates, shared by algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import TRANSITION, GradientStep
from minding.policies.learning.target import SoftTarget
from minding.policies.networks.actor_critic import DeterministicActor, TwinCritics
from minding.policies.networks.layers import Clip
from minding.policies.ops import lean
from minding.policies.ops.order import after
from minding.policies.ops.soft import twin_objectives


class TwinDelayed(GradientStep):
    """Root cell: actor, twin critics, the targets of both, and optimizer (Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477, algorithm 1).

    The critics are updated first. If a step of the actor is due, the actor is updated with the new critics, then both
    targets. A subclass defines `td_target` and `loss_of_actor`.

    Args:
      actors, critics: for each, the online network and its target, of the same shape.
      learn: the configuration `policy.learn`.
      fields: names of the row fields that a step reads.

    Attributes:
      of_actor: names of the metrics that `loss_of_actor` returns; they are means over the steps that update the actor.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value")
    of_actor: tuple[str, ...] = ("actor_loss",)

    def __init__(
        self,
        actors: tuple[DeterministicActor, DeterministicActor],
        critics: tuple[TwinCritics, TwinCritics],
        learn: Mapping[str, Any],
        fields: Sequence[str] = TRANSITION,
    ) -> None:
        super().__init__(fields)
        self.net, self.target_net = actors
        self.critics, self.target_critics = critics
        self.optim = Optimizer(actor=Group.of(self.net, learn), critics=Group.of(self.critics, learn))
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actor"))
        self.move_critics = SoftTarget(self.critics, self.target_critics, self.optim.block("critics"))
        self.limit_action = Clip(-1.0, 1.0)
        self.twin_target, self.critic_loss = twin_objectives()
        self.zeros = tuple(ms.Tensor(np.float32(0.0)) for _ in self.of_actor)
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    # Defined by the algorithm.

    def td_target(self, batch):
        """y, float32 (B,), from the batch of the step; no gradient flows into it."""
        raise NotImplementedError

    def loss_of_actor(self, rows):
        """The loss, and the metrics `of_actor` by name.

        Args:
          rows: `obs` and `action` by name.
        """
        raise NotImplementedError

    # Shared by the algorithms.

    def loss_of_critics(self, batch):
        q1, q2 = self.critics(batch["action"], batch["obs"])
        loss, q = self.critic_loss(q1, q2, batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def next_actions(self, batch):
        """The actions of the target actor with the clipped noise of the batch, float32 (B, A) in [-1, 1]."""
        return self.limit_action(self.target_net(batch["next_obs"])[0] + batch["noise"])

    def construct(self, batch):
        # Critics
        rows = {"obs": batch["obs"], "action": batch["action"], "target": self.td_target(batch)}
        (_, metrics), grads = self.critic_gradient(rows)
        done = self.optim({"critics": grads}, batch, (metrics, grads))["critics"]
        # Actor and targets
        if "due" in batch:
            values = self.move_actor_if_due(batch, done)
        elif "tau" in batch:
            values = self.move_actor(batch, done)
        else:
            values = self.zeros
        # A caller that waits for a metric waits for the whole step.
        for k in range(len(self.of_actor)):
            metrics[self.of_actor[k]] = after(lean.item(values, k), done)
        return metrics

    def move_actor_if_due(self, batch, done):
        values = self.zeros
        if after(batch["due"], done) > 0.0:
            values = self.move_actor(batch, done)
        return values

    def move_actor(self, batch, done):
        """Updates the actor, then all targets; returns the actor's metrics in order, available after these updates.

        Args:
          batch: the batch of the step.
          done: a result of the critics' step, which comes first.
        """
        (_, metrics), grads = self.actor_gradient({"obs": after(batch["obs"], done), "action": batch["action"]})
        norm = self.optim({"actor": grads}, batch, (metrics, grads))["actor"]
        moved = (self.move_net(batch["tau"], norm), self.move_critics(batch["tau"], norm))
        values: Any = ()
        for name in self.of_actor:
            values = (*values, after(metrics[name], moved))
        return values
