"""SAC: maximum-entropy actor-critic with twin critics and a learned temperature.

Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905, algorithm 1 and eq. 5, 7, 18.

    y = R + gamma^k (1 - terminated) [ min_i Q_target_i(s', a') - alpha log pi(a'|s') ],   a' ~ pi(s')
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = mean[ alpha log pi(a|s) - min_i Q_i(s, a) ],   a ~ pi(s) reparametrised
    L_alpha = -log(alpha) (log pi(a|s) + H_target)

A gradient step computes all three gradients at the same parameters and then updates everything, see `SoftActorCritic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.policies.families.soft_actor_critic import SoftActorCritic, SquashedGaussianPolicy
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import SquashedActor, TwinCritics
from minding.policies.ops.distributions import SquashedGaussian
from minding.policies.ops.values import soft_objectives


class SACCell(SoftActorCritic):
    """Root cell of a policy of squashed Gaussians; `target_entropy` is in nats."""

    def __init__(
        self,
        actor: SquashedActor,
        critics: TwinCritics,
        targets: TwinCritics,
        learn: Mapping[str, Any],
        target_entropy: float,
    ) -> None:
        super().__init__(actor, critics, targets, learn)
        self.squashed = SquashedGaussian()
        self.soft_target, self.critic_loss, self.policy_loss = soft_objectives()
        self.wanted_entropy = target_entropy

    def td_target(self, batch):
        """y, float32 (B,)."""
        mean, log_std = self.net(batch["next_obs"])
        action, log_prob = self.squashed(mean, log_std, batch["next_noise"])
        q1, q2 = self.targets(action, batch["next_obs"])
        return self.soft_target(
            batch["reward"], batch["discount"], batch["terminated"], q1, q2, log_prob, batch["alpha"]
        )

    def loss_of_critics(self, batch):
        q1, q2 = self.critics(batch["action"], batch["obs"])
        loss, q = self.critic_loss(q1, q2, batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def loss_of_actor(self, batch):
        mean, log_std = self.net(batch["obs"])
        action, log_prob = self.squashed(mean, log_std, batch["noise"])
        q1, q2 = self.critics(action, batch["obs"])
        loss, log_prob = self.policy_loss(q1, q2, log_prob, batch["alpha"])
        return loss, {"actor_loss": loss, "entropy": -log_prob}

    def target_entropy(self, batch):
        return self.wanted_entropy


class SAC(SquashedGaussianPolicy):
    """Soft actor-critic for Box actions in [-1, 1]."""

    name = "sac"

    def make_learner(self, net: Any, critics: tuple[Any, Any]) -> SACCell:
        return SACCell(net, *critics, self.cfg.learn, self.target_entropy)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        shape = (*batch.index.shape, self.action_size)
        noise = self.learn_rng.standard_normal((2, *shape), dtype=np.float32)
        return Inputs(
            {"next_noise": noise[0], "noise": noise[1]},
            {**self.root.optim.rates(progress), "tau": float(self.cfg.learn.tau)},
        )
