"""P-DQN: Q-learning over choices, each with parameters that an actor computes; multi-pass (MP-DQN) as a switch.

Xiong et al., 2018, https://arxiv.org/abs/1810.06394, eq. 4.2 and algorithm 1; multi-pass: Bester et al., 2019,
https://arxiv.org/abs/1905.04388, section 4. An action is a choice k with parameters x, the numbers of all Boxes:

    y = R + gamma^j (1 - terminated) max_k Q_target(s', k, x_target(s'))
    L_Q = mean[ 1/2 (Q(s, k, x) - y)^2 ]
    L_x = -mean[ sum_k Q(s, k, x(s)) ]         (over legal k, with the updated critic; then both targets are updated)

Multi-pass computes Q(s, k, .) with the parameters of all other choices set to 0. Otherwise a value depends on all
parameters, and L_x changes those of a choice also for the sake of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.acting.actors import Network, ParametrisedActor
from minding.policies.acting.sampling import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.parametrised import ParametrisedNetwork
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import chosen_value, half_square, one_step


class PDQNCell(GradientStep):
    """Root cell: network, target network and optimizer.

    Args:
      net, target: networks of actor and critic, of the same shape.
      learn: the configuration `policy.learn`.
    """

    metrics = ("critic_loss", "actor_loss", "q_value")

    def __init__(self, net: ParametrisedNetwork, target: ParametrisedNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__()
        self.net, self.target = net, target
        self.optim = Optimizer(actor=Group.of(net.actor, learn), critic=Group.of(net.critic, learn))
        self.move_actor = SoftTarget(net.actor, target.actor, self.optim.block("actor"))
        self.move_critic = SoftTarget(net.critic, target.critic, self.optim.block("critic"))
        self.critic_gradient = self.optim.gradient(self.loss_of_critic, "critic")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    def td_target(self, batch):
        """y, float32 (B,)."""
        return one_step(batch, primitives.largest(self.target(batch["next_obs"])[0]))

    def loss_of_critic(self, batch):
        q = chosen_value(self.net.critic(batch["numbers"], batch["obs"]), batch["choice"])
        loss = primitives.mean(half_square(q - batch["target"]))
        return loss, {"critic_loss": loss, "q_value": primitives.mean(q)}

    def loss_of_actor(self, obs):
        values = self.net.critic(self.net.actor(obs)[0], obs)
        if self.net.mask is not None:
            values = values * ops.Cast()(obs[self.net.mask.place], ms.float32)
        loss = -primitives.mean(ops.ReduceSum()(values, -1))
        return loss, {"actor_loss": loss}

    def construct(self, batch):
        # Critic
        rows = {"obs": batch["obs"], "target": self.td_target(batch), "numbers": batch["action"][:, 1:]}
        rows["choice"] = ops.Cast()(batch["action"][:, 0], ms.int32)
        (_, metrics), grads = self.critic_gradient(rows)
        done = self.optim({"critic": grads}, batch, (metrics, grads))["critic"]
        # Actor
        (_, of_actor), grads = self.actor_gradient(after(batch["obs"], done))
        done = self.optim({"actor": grads}, batch, (of_actor, grads))["actor"]
        # Targets
        moved = (self.move_actor(batch["tau"], done), self.move_critic(batch["tau"], done))
        # A caller that waits for a metric waits for the whole step.
        metrics["actor_loss"] = after(of_actor["actor_loss"], moved)
        return metrics


class PDQN(BasePolicy):
    """Parametrised deep Q-network for actions of one choice and numbers in [-1, 1]."""

    name = "pdqn"
    network_class = ParametrisedNetwork
    sequences = False

    def make_root(self, net: ParametrisedNetwork, rng: np.random.Generator) -> PDQNCell:
        target = self.make_network(rng)
        equalize(net, target)
        return PDQNCell(net, target, self.cfg.learn)

    def make_actor(self, network: Network, rng: np.random.Generator) -> ParametrisedActor:
        noise = make_noise(self.cfg.collect.noise, len(self.spec["action"]["low"]), self.name)
        return ParametrisedActor(self.name, network, self.spec, rng, noise)
