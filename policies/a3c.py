"""A3C: advantage actor-critic, one gradient step for each short rollout of one of several collectors.

Mnih et al., 2016, https://arxiv.org/abs/1602.01783, section 4 and algorithm S3:

    R_t = sum_{i<k} gamma^i r_{t+i} + gamma^k V(s_{t+k}),   t + k the end of the rollout or of the trajectory
    L = -mean[ (R_t - V(s_t)) log pi(a_t|s_t) ] + c_v 1/2 mean[ (R_t - V(s_t))^2 ] - c_e mean[ H ]

In the paper, each worker computes the gradient at its own copy of the weights and applies it, late, to the shared
weights. Here the collectors only act: one learner computes the gradient at its current weights, from data of slightly
older weights, without a correction for the difference. `R_t` comes from `gae_estimator` with the values of the acting
weights.
"""

from collections.abc import Mapping
from typing import Any

from minding.policies.families.actor_critic import ActorCriticPolicy, ActorCriticStep
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.ops.advantage_loss import ADVANTAGE_METRICS, advantage_loss


class A3CCell(ActorCriticStep):
    """Root cell: network and optimizer."""

    metrics = (*ADVANTAGE_METRICS, "grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn, ("value_weight", "entropy_weight"))

    def loss(self, batch):
        log_prob, entropy, value, _ = self.evaluate_actions(batch)
        batch["advantage"] = batch["return"] - value
        results = advantage_loss(log_prob, entropy, value, batch, self.cfg)
        return results[0], self.named(results)


class A3C(ActorCriticPolicy):
    """Asynchronous advantage actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "a3c"
    step_class = A3CCell
    scalar_fields = ("log_prob", "return")
