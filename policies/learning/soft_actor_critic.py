"""Gradient steps of maximum-entropy actor-critics: what algorithms share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import TRANSITION, GradientStep
from minding.policies.learning.target import SoftTarget
from minding.policies.ops.order import after


class SoftActorCritic(GradientStep):
    """Root cell: actor, twin critics and their targets, temperature, optimizer.

    A step takes the gradients of critics, actor and temperature from the same parameters and then moves everything at
    once, as Brax does (https://github.com/google/brax, training/agents/sac/train.py); others let the actor see the
    critics after their step. A subclass defines `td_target`, `loss_of_critics`, `loss_of_actor` and `target_entropy`.

    Args:
      actor: the network that acts.
      critics, targets: the online critics and their targets, of the same shape.
      learn: the configuration `policy.learn`; with `actor_learning_rate` for actor and temperature, if there is one.

    Attributes:
      of_critics: names of further metrics, which `loss_of_critics` returns.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "alpha_loss", "alpha", "q_value", "entropy")
    of_critics: tuple[str, ...] = ()

    def __init__(self, actor: nn.Cell, critics: nn.Cell, targets: nn.Cell, learn: Mapping[str, Any]) -> None:
        super().__init__(TRANSITION)
        self.net = actor
        self.critics = critics
        self.targets = targets
        self.log_alpha = ms.Parameter(ms.Tensor(np.float32(math.log(learn["alpha"]))), name="log_alpha")
        of_actor = {**learn, "learning_rate": learn.get("actor_learning_rate") or learn["learning_rate"]}
        groups = {"actor": Group.of(actor, of_actor), "critics": Group.of(critics, learn)}
        if learn["auto_alpha"]:
            groups["alpha"] = dataclasses.replace(groups["actor"], params=[self.log_alpha])
        self.optim = Optimizer(**groups, **self.own_groups(learn))
        self.move_targets = SoftTarget(critics, targets, self.optim.block("critics"))
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    # What an algorithm defines. The batch is that of the step, with the temperature as `alpha`.

    def td_target(self, batch):
        """The `target` in the batch of `loss_of_critics`; no gradient flows into it."""
        raise NotImplementedError

    def loss_of_critics(self, batch):
        """The loss, and by name `critic_loss`, `q_value` and what the actor's loss needs of the critics."""
        raise NotImplementedError

    def loss_of_actor(self, batch):
        """The loss, and by name `actor_loss` and `entropy`, the mean one in nats.

        Args:
          batch: also with `of_critics`, what `loss_of_critics` returned by name.
        """
        raise NotImplementedError

    def target_entropy(self, batch):
        """The entropy that the temperature is to bring about, nats: a number or a scalar."""
        raise NotImplementedError

    def own_groups(self, learn: Mapping[str, Any]) -> dict[str, Group]:
        """Further groups of parameters, by name; none by default."""
        return {}

    def own_gradients(self, critic):
        """Their gradients, by name, from what `loss_of_critics` returned by name."""
        return {}

    def prepare(self, batch):
        """The batch with what the losses need beside it; as it is by default."""
        return batch

    # What the algorithms share.

    def construct(self, batch):
        alpha = ops.exp(self.log_alpha)
        batch["alpha"] = alpha
        batch = self.prepare(batch)
        # Target
        batch["target"] = self.td_target(batch)
        # Loss
        (_, critic), critic_grads = self.critic_gradient(batch)
        batch["of_critics"] = critic
        (_, actor), actor_grads = self.actor_gradient(batch)
        excess = actor["entropy"] - self.target_entropy(batch)
        metrics = {
            "critic_loss": critic["critic_loss"],
            "actor_loss": actor["actor_loss"],
            "alpha_loss": self.log_alpha * excess,
            "alpha": alpha,
            "q_value": critic["q_value"],
            "entropy": actor["entropy"],
        }
        for name in self.of_critics:
            metrics[name] = critic[name]
        # Update
        # That of the temperature is d L_alpha / d log(alpha).
        grads = {"actor": actor_grads, "critics": critic_grads, "alpha": (excess,)}
        for name, value in self.own_gradients(critic).items():
            grads[name] = value
        norms = self.optim(grads, batch, (metrics, grads))
        moved = self.move_targets(batch["tau"], norms["critics"])
        # Who waits for a metric waits for the whole step.
        metrics["entropy"] = after(actor["entropy"], (norms, moved))
        return metrics
