"""A2C: synchronous advantage actor-critic, one gradient step for each short rollout of all environments together.

Mnih et al., 2016, https://arxiv.org/abs/1602.01783, algorithm S3, with one worker that steps all environments:

    L = -mean[ A_t log pi(a_t|s_t) ] + c_v 1/2 mean[ (V(s_t) - R_t)^2 ] - c_e mean[ H ]

A and R are computed for the rollout with the values of the policy that acted. `gae_estimator` gives n-step returns with
``gae_lambda`` 1 and lambda-returns with smaller values; `montecarlo_return_estimator` always gives n-step returns.

With memory (`model.memory`) the network is unrolled over each environment's part of the rollout, as in PPO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.policies.families.actor_critic import MEMORY, ActorCriticPolicy
from minding.policies.kernels import usable
from minding.policies.learning.optim import Group, Optimizer, method_of
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.policy_gradient import FusedAdvantageLoss, advantage_loss


class A2CCell(GradientStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        remembers = net.memory is not None
        super().__init__(["obs", "action", "log_prob", "return", *(MEMORY if remembers else ())])
        self.net = net
        self.optim = Optimizer(net=Group.of(net, learn, **method_of(learn)))
        # A plain dict of numbers, which are compiled in as constants.
        self.cfg = {name: learn[name] for name in ("value_weight", "entropy_weight")}
        fuse_likelihood(net.head)
        self.fused = FusedAdvantageLoss(self.cfg) if usable() else None
        self.gradient = self.optim.gradient(self.loss, "net")

    def loss(self, batch):
        outputs = self.net.of_rows(batch)
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], batch["action"])
        if self.fused is not None:
            return self.fused(log_prob, entropy, outputs[0], batch)
        return advantage_loss(log_prob, entropy, outputs[0], batch, self.cfg)

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        return metrics


class A2C(ActorCriticPolicy):
    """Advantage actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "a2c"

    def make_root(self, net: ActorCritic, rng: np.random.Generator) -> A2CCell:
        return A2CCell(net, self.cfg.learn)

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = dict.fromkeys(("log_prob", "advantage", "return"), Field())
        return {**self.obs_fields("obs"), "action": self.action_field, **numbers, **self.memory_fields}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs({"advantage": self.advantage(batch)}, self.root.optim.rates(progress))
