"""DDPG: deterministic actor-critic with replay and slowly moving targets.

Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971, algorithm 1.

    y = R + gamma^k (1 - terminated) Q_target(s', pi_target(s'))
    L_Q = mean[ 1/2 (Q(s, a) - y)^2 ]
    L_pi = -mean[ Q(s, pi(s)) ]                (with the updated critic; then both targets are updated)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.policies.acting.actors import Network, NoisyActor
from minding.policies.acting.sampling import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import ActionValue, DeterministicActor
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import half_square, one_step


class DDPGCell(GradientStep):
    """Root cell: actor, critic, the targets of both, and optimizer."""

    metrics = ("critic_loss", "actor_loss", "q_value")

    def __init__(
        self,
        actors: tuple[DeterministicActor, DeterministicActor],
        critics: tuple[ActionValue, ActionValue],
        learn: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.net, self.target_net = actors
        self.critic, self.target_critic = critics
        self.optim = Optimizer(actor=Group.of(self.net, learn), critic=Group.of(self.critic, learn))
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actor"))
        self.move_critic = SoftTarget(self.critic, self.target_critic, self.optim.block("critic"))
        self.critic_gradient = self.optim.gradient(self.loss_of_critic, "critic")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    def loss_of_critic(self, batch):
        q = self.critic(batch["action"], batch["obs"])
        loss = primitives.mean(half_square(q - batch["target"]))
        return loss, {"critic_loss": loss, "q_value": primitives.mean(q)}

    def loss_of_actor(self, obs):
        loss = -primitives.mean(self.critic(self.net(obs)[0], obs))
        return loss, {"actor_loss": loss}

    def construct(self, batch):
        # Target
        next_value = self.target_critic(self.target_net(batch["next_obs"])[0], batch["next_obs"])
        # Critic
        rows = {"obs": batch["obs"], "action": batch["action"], "target": one_step(batch, next_value)}
        (_, metrics), grads = self.critic_gradient(rows)
        done = self.optim({"critic": grads}, batch, (metrics, grads))["critic"]
        # Actor
        (_, of_actor), grads = self.actor_gradient(after(batch["obs"], done))
        done = self.optim({"actor": grads}, batch, (of_actor, grads))["actor"]
        # Targets
        moved = (self.move_net(batch["tau"], done), self.move_critic(batch["tau"], done))
        # A caller that waits for a metric waits for the whole step.
        metrics["actor_loss"] = after(of_actor["actor_loss"], moved)
        return metrics


class DDPG(BasePolicy):
    """Deep deterministic policy gradient for Box actions in [-1, 1]."""

    name = "ddpg"
    network_class = DeterministicActor
    sequences = False

    def make_root(self, net: DeterministicActor, rng: np.random.Generator) -> DDPGCell:
        target_net = self.make_network(rng)
        critic, target_critic = (ActionValue(self.spec, self.cfg.model, rng) for _ in range(2))
        root = DDPGCell((net, target_net), (critic, target_critic), self.cfg.learn)
        equalize(net, target_net)
        equalize(critic, target_critic)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> NoisyActor:
        noise = make_noise(self.cfg.collect.noise, math.prod(self.spec["action"]["shape"]), self.name)
        return NoisyActor(self.name, network, self.spec, rng, noise)
