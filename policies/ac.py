"""AC: one-step actor-critic, which learns from every step as it is taken.

Sutton and Barto, 2018, http://incompleteideas.net/book/the-book-2nd.html, section 13.5, one-step actor-critic
(episodic), without the factor gamma^t:

    delta = R + gamma (1 - terminated) V(S') - V(S)
    w     <- w + alpha_w mean[ delta grad V(S) ]
    theta <- theta + alpha_theta mean[ delta grad log pi(A|S) ]

The mean is over the environments, each of which takes one step between two gradient steps. Actor and critic each have
their own learning rate and optimizer statistics. `gae_estimator` with ``gae_lambda`` 0 provides delta, as `advantage`
and as ``return - V``; other middleware, or another lambda, puts its advantages and returns in the place of delta.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from minding.policies.families.actor_critic import ActorCriticPolicy, ActorCriticStep, actor_and_critic
from minding.policies.learning.optim import Group
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.advantage_loss import ADVANTAGE_METRICS, AdvantageLoss


class ACCell(ActorCriticStep):
    """Root cell: network and optimizer. The encoder belongs to the actor's group and gets gradients of both losses."""

    metrics = (*ADVANTAGE_METRICS, "actor_grad_norm", "critic_grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn)
        self.count = len(self.optim.groups["actor"].params)
        fuse_likelihood(net.head)
        self.objective = AdvantageLoss(learn)

    def groups(self, net: ActorCritic, whole: Group, learn: Mapping[str, Any]) -> dict[str, Group]:
        actor, critic = actor_and_critic(net)
        return {
            "actor": dataclasses.replace(whole, params=actor),
            "critic": dataclasses.replace(whole, params=critic, rate=learn["critic_learning_rate"]),
        }

    def loss(self, batch):
        log_prob, entropy, value, _ = self.evaluate_actions(batch)
        results = self.objective(log_prob, entropy, value, batch)
        return results[0], self.named(results)

    def step(self, batch):
        (_, metrics), grads = self.gradient(batch)
        grads = {"actor": grads[: self.count], "critic": grads[self.count :]}
        norms = self.optim(grads, batch, metrics)
        metrics["actor_grad_norm"], metrics["critic_grad_norm"] = norms["actor"], norms["critic"]
        return metrics


class AC(ActorCriticPolicy):
    """One-step actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "ac"
    step_class = ACCell
    scalar_fields = ("log_prob", "advantage", "return")
