"""DDPG: deterministic actor-critic with replay and slowly moving targets.

Lillicrap et al., 2016, https://arxiv.org/abs/1509.02971, algorithm 1.

    y = R + gamma^k (1 - terminated) Q_target(s', pi_target(s'))
    L_Q = mean[ 1/2 (Q(s, a) - y)^2 ]
    L_pi = -mean[ Q(s, pi(s)) ]                (with the updated critic; then both targets are updated)
"""

import numpy as np

from minding.policies.families.critics_first import DeterministicPolicy, TwinDelayed
from minding.policies.learning.target import equalize
from minding.policies.networks.actor_critic import ActionValue, DeterministicActor
from minding.policies.ops import primitives
from minding.policies.ops.values import half_square, one_step
from minding.policies.settings.replayed_critics import DDPGSettings


class DDPGCell(TwinDelayed):
    """Root cell: see `TwinDelayed`; here every step updates everything."""

    def td_target(self, batch):
        return one_step(batch, self.target_critics(self.target_net(batch["next_obs"])[0], batch["next_obs"]))

    def loss_of_critics(self, batch):
        q = self.critics(batch["action"], batch["obs"])
        loss = primitives.mean(half_square(q - batch["target"]))
        return loss, {"critic_loss": loss, "q_value": primitives.mean(q)}

    def loss_of_actor(self, batch):
        loss = -primitives.mean(self.critics(self.net(batch["obs"])[0], batch["obs"]))
        return loss, {"actor_loss": loss}


class DDPG(DeterministicPolicy):
    """Deep deterministic policy gradient for Box actions in [-1, 1]."""

    cfg: DDPGSettings
    name = "ddpg"

    def make_root(self, net: DeterministicActor, rng: np.random.Generator) -> DDPGCell:
        target_net = self.make_network(rng)
        critic, target_critic = (ActionValue(self.spec, self.cfg.model, rng) for _ in range(2))
        equalize(net, target_net)
        equalize(critic, target_critic)
        return DDPGCell((net, target_net), (critic, target_critic), self.cfg.learn)
