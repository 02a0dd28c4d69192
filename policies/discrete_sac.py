"""Discrete SAC: maximum-entropy actor-critic whose expectations over the actions are exact.

Christodoulou, 2019, https://arxiv.org/abs/1910.07207, section 3 and algorithm 1, for the SAC of Haarnoja et al., 2018,
https://arxiv.org/abs/1812.05905.

    V(s) = sum_a pi(a|s) [ min_i Q_i(s, a) - alpha log pi(a|s) ]
    y = R + gamma^k (1 - terminated) V(s'),   with Q_target_i for Q_i
    L_Q = mean[ 1/2 (Q_1(s, a) - y)^2 + 1/2 (Q_2(s, a) - y)^2 ]
    L_pi = -mean[ V(s) ]
    L_alpha = log(alpha) mean[ H(pi(.|s)) - c log n(s) ],   n(s) the number of (legal) actions in s

A gradient step computes all three gradients at the same parameters and then updates everything, see `SoftActorCritic`.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.core.base import BasePolicy
from minding.policies.families.soft_actor_critic import SoftActorCritic
from minding.policies.learning.target import equalize
from minding.policies.networks.actor_critic import CriticEnsemble, PolicyNetwork, QNetwork
from minding.policies.ops import primitives
from minding.policies.ops.values import chosen_value, lowest, one_step


def soft_value(log_p, q, alpha):
    """Value of states under a policy, with its entropy: sum_a pi(a) [ Q(a) - alpha log pi(a) ].

    Args:
      log_p: float32 (B, A), log-probabilities; for illegal actions so low that their probability is 0.
      q: float32 (B, A), finite even for illegal actions.

    Returns:
      float32 (B,).
    """
    return ops.ReduceSum()(ops.Exp()(log_p) * (q - alpha * log_p), -1)


def mean_entropy(log_p):
    """Mean entropy of policies in nats, a scalar without gradient; `log_p` is float32 (B, A) as in `soft_value`."""
    log_p = ops.stop_gradient(log_p)
    return -primitives.mean(ops.ReduceSum()(ops.Exp()(log_p) * log_p, -1))


class DiscreteSACCell(SoftActorCritic):
    """Root cell of a policy of discrete actions.

    Args:
      actor: network whose first output is the logits (B, A).
    """

    def __init__(
        self,
        actor: PolicyNetwork,
        critics: CriticEnsemble,
        targets: CriticEnsemble,
        learn: Mapping[str, Any],
        count: int,
    ) -> None:
        super().__init__(actor, critics, targets, learn)
        self.log_count = ms.Tensor(np.float32(math.log(count)))
        self.target_entropy_share = float(learn["target_entropy_share"])

    def td_target(self, batch):
        q = lowest(self.targets(batch["next_obs"]))
        return one_step(batch, soft_value(self.log_policy(batch["next_obs"]), q, batch["alpha"]))

    def loss_of_critics(self, batch):
        q = self.critics(batch["obs"])
        chosen = chosen_value(q, ops.BroadcastTo(q.shape[:2])(batch["action"]))
        loss, value = self.critic_loss(chosen, batch["target"])
        # The actor's loss uses the same values.
        return loss, {"critic_loss": loss, "q_value": value, "q": ops.stop_gradient(lowest(q))}

    def loss_of_actor(self, batch):
        log_p = self.log_policy(batch["obs"])
        loss = -primitives.mean(soft_value(log_p, batch["of_critics"]["q"], batch["alpha"]))
        return loss, {"actor_loss": loss, "entropy": mean_entropy(log_p)}

    def target_entropy(self, batch):
        return self.target_entropy_share * self.largest_entropy(batch["obs"])

    def log_policy(self, obs):
        """Log-probabilities of all actions, float32 (B, A)."""
        return ops.LogSoftmax(-1)(self.net(obs)[0])

    def largest_entropy(self, obs):
        """Mean entropy of the policy that is uniform over the legal actions, a scalar."""
        if self.net.mask is None:
            return self.log_count
        legal = ops.Cast()(primitives.item(obs, self.net.mask.place), ms.float32)
        return primitives.mean(ops.Log()(ops.ReduceSum()(legal, -1)))


class DiscreteSAC(BasePolicy):
    """Soft actor-critic for Discrete actions."""

    name = "discrete_sac"
    network_class = PolicyNetwork
    sequences = False

    def make_root(self, net: PolicyNetwork, rng: np.random.Generator) -> DiscreteSACCell:
        critics, targets = (CriticEnsemble(self.spec, self.cfg.model, rng, kind=QNetwork) for _ in range(2))
        equalize(critics, targets)
        return DiscreteSACCell(net, critics, targets, self.cfg.learn, self.spec["action"]["n"])
