"""What the root cells of maximum-entropy actor-critics have in common."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget


class SoftActorCritic(GradientStep):
    """Actor, twin critics and their targets, temperature, optimizer.

    A subclass defines `loss_of_critics` and `loss_of_actor`, ``batch -> (loss, metrics by name)``, and `construct`.

    Args:
      actor: the network that acts.
      critics, targets: the online critics and their targets, of the same shape.
      learn: the configuration `policy.learn`.
    """

    metrics = ("critic_loss", "actor_loss", "alpha_loss", "alpha", "q_value", "entropy")

    def __init__(self, actor: nn.Cell, critics: nn.Cell, targets: nn.Cell, learn: Mapping[str, Any]) -> None:
        super().__init__(["obs", "next_obs", "action", "reward", "terminated", "discount"])
        self.net = actor
        self.critics = critics
        self.targets = targets
        self.log_alpha = ms.Parameter(ms.Tensor(np.float32(math.log(learn["alpha"]))), name="log_alpha")
        groups = {"actor": Group.of(actor, learn), "critics": Group.of(critics, learn)}
        if learn["auto_alpha"]:
            groups["alpha"] = dataclasses.replace(groups["actor"], params=[self.log_alpha])
        self.optim = Optimizer(**groups)
        self.move_targets = SoftTarget(critics, targets, self.optim.block("critics"))
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    def loss_of_critics(self, batch):
        raise NotImplementedError

    def loss_of_actor(self, batch):
        raise NotImplementedError
