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

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field
from minding.policies.families.actor_critic import ActorCriticPolicy
from minding.policies.kernels import usable
from minding.policies.learning.optim import Group, Optimizer, method_of
from minding.policies.learning.steps import GradientStep
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.policy_gradient import FusedAdvantageLoss, advantage_loss


class ACCell(GradientStep):
    """Root cell: network and optimizer. The encoder belongs to the actor's group and gets gradients of both losses."""

    metrics = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "actor_grad_norm", "critic_grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(["obs", "action", "log_prob", "advantage", "return"])
        self.net = net
        critic = [*net.critic.trainable_params(), *net.value.trainable_params()]
        valued = {id(p) for p in critic}
        actor = [p for p in net.trainable_params() if id(p) not in valued]
        whole = Group.of(net, learn, **method_of(learn))
        self.optim = Optimizer(
            actor=dataclasses.replace(whole, params=actor),
            critic=dataclasses.replace(whole, params=critic, rate=learn["critic_learning_rate"]),
        )
        # A plain dict of numbers, which are compiled in as constants.
        self.cfg = {name: learn[name] for name in ("value_weight", "entropy_weight")}
        fuse_likelihood(net.head)
        self.fused = FusedAdvantageLoss(self.cfg) if usable() else None
        self.gradient, self.count = self.optim.gradient(self.loss, "actor", "critic"), len(actor)

    def loss(self, batch):
        outputs = self.net(batch["obs"])
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], batch["action"])
        if self.fused is not None:
            return self.fused(log_prob, entropy, outputs[0], batch)
        return advantage_loss(log_prob, entropy, outputs[0], batch, self.cfg)

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        grads = {"actor": grads[: self.count], "critic": grads[self.count :]}
        norms = self.optim(grads, batch, metrics)
        metrics["actor_grad_norm"], metrics["critic_grad_norm"] = norms["actor"], norms["critic"]
        return metrics


class AC(ActorCriticPolicy):
    """One-step actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "ac"

    def make_root(self, net: ActorCritic, rng: np.random.Generator) -> ACCell:
        return ACCell(net, self.cfg.learn)

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = dict.fromkeys(("log_prob", "advantage", "return"), Field())
        return {**self.obs_fields("obs"), "action": self.action_field, **numbers}
