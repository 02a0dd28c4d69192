"""A3C: advantage actor-critic, one gradient step for each short rollout of one of several collectors.

Mnih et al., 2016, https://arxiv.org/abs/1602.01783, section 4 and algorithm S3:

    R_t = sum_{i<k} gamma^i r_{t+i} + gamma^k V(s_{t+k}),   t + k the end of the rollout or of the trajectory
    L = -mean[ (R_t - V(s_t)) log pi(a_t|s_t) ] + c_v 1/2 mean[ (R_t - V(s_t))^2 ] - c_e mean[ H ]

In the paper, each worker computes the gradient at its own copy of the weights and applies it, late, to the shared
weights. Here the collectors only act: one learner computes the gradient at its current weights, from data of slightly
older weights, without a correction for the difference. `R_t` comes from `gae_estimator` with the values of the acting
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field
from minding.engine.process.runtime import ops
from minding.policies.families.actor_critic import ActorCriticPolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.ops import primitives


def a3c_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one rollout.

    Args:
      log_prob, value: log-probability and value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name: `log_prob` (of the acting policy) and `return` (the n-step return), each float32 (B,).
      cfg: the `learn` part of the configuration.

    Returns:
      (loss, metrics by name), scalars. The estimate of the KL divergence of the learned policy from the acting policy
      is ``mean[(r - 1) - log r]`` (http://joschu.net/blog/kl-approx.html).
    """
    advantage = batch["return"] - value
    policy_loss = -primitives.mean(ops.stop_gradient(advantage) * log_prob)
    value_loss = 0.5 * primitives.mean(ops.square(advantage))
    entropy = primitives.mean(entropy)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    log_ratio = log_prob - batch["log_prob"]
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": primitives.mean(ops.exp(log_ratio) - 1.0 - log_ratio),
    }


class A3CCell(GradientStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(["obs", "action", "log_prob", "return"])
        self.net = net
        self.optim = Optimizer(net=Group.of(net, learn, eps=1e-5, max_grad_norm=learn["grad_norm"]))
        # A plain dict of numbers, which are compiled in as constants.
        self.cfg = {name: learn[name] for name in ("value_weight", "entropy_weight")}
        self.gradient = self.optim.gradient(self.loss, "net")

    def loss(self, batch):
        outputs = self.net(batch["obs"])
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], batch["action"])
        return a3c_loss(log_prob, entropy, outputs[0], batch, self.cfg)

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        return metrics


class A3C(ActorCriticPolicy):
    """Asynchronous advantage actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "a3c"

    def make_root(self, net: ActorCritic, rng: np.random.Generator) -> A3CCell:
        return A3CCell(net, self.cfg.learn)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field, "log_prob": Field(), "return": Field()}
