"""PPO: clipped policy gradients over several passes of the same rollout.

Schulman et al., 2017, https://arxiv.org/abs/1707.06347, eq. 7 and 9; the value clip, the orthogonal initial weights and
the advantage normalization follow Huang et al., 2022,
https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.

    r_t = pi(a_t|s_t) / pi_old(a_t|s_t)
    L = mean[ max(-A r, -A clip(r, 1-e, 1+e)) ] + c_v L_value - c_e H
    L_value = 1/2 mean[ max((V - R)^2, (V_old + clip(V - V_old, -e, e) - R)^2) ]

In an asynchronous run the policy that acted, mu, is older than pi_old, the policy from which an update starts. The
ratio is still clipped around pi_old, and A is weighted by min(w, pi_old(a|s) / mu(a|s)), w = 2: the decoupled objective
of Hilton et al., 2022, https://arxiv.org/abs/2110.00641, eq. 2, with a bounded weight. Clipping around mu would lose
most of the gradient, because the updates between mu and pi_old have used up the range. Without lag, mu and pi_old are
the same.

With memory (`model.memory`) the network is unrolled over each environment's part of the rollout, starting from the
memory before it, and gradients flow back to this start: back-propagation through time, truncated to the rollout. A
minibatch then consists of some of the environments; rows of resets are unrolled with the others and have weight 0 in
the means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ops
from minding.policies.families.actor_critic import MEMORY, ActorCriticPolicy, ProximalStep
from minding.policies.kernels import usable
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import ALL_ROWS, Inputs
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.policy_gradient import FusedSurrogate, clipped_surrogate, row_mean

WEIGHT_BOUND = 2.0
"""Upper bound of the weight of rows that an older policy collected."""


def ppo_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one minibatch; `FusedSurrogate` is its form with this package's kernels.

    Args:
      log_prob, value: log-probability and value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name: the old `log_prob` and `value`, `advantage`, `return` and, if some rows do not count, `valid`,
        each float32 (B,).
      cfg: the `learn` part of the configuration.

    Returns:
      (loss, metrics by name), scalars.
    """
    clip, target, old_value = cfg["clip_ratio"], batch["return"], batch["value"]
    # Policy
    policy_loss, metrics = clipped_surrogate(log_prob, batch, batch, clip)
    # Value
    error = ops.square(value - target)
    if cfg["value_clip"]:
        clipped = old_value + ops.clamp(value - old_value, -clip, clip)
        error = ops.maximum(error, ops.square(clipped - target))
    value_loss = 0.5 * row_mean(error, batch)
    # Total
    entropy = row_mean(entropy, batch)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": metrics["approx_kl"],
        "clip_fraction": metrics["clip_fraction"],
    }


class PPOCell(ProximalStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")
    present_names = ("present_log_prob", "present_value", "trust")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        remembers = net.memory is not None
        super().__init__(["obs", "action", "log_prob", "return", "value", *(MEMORY if remembers else ())])
        self.net = net
        self.optim = Optimizer(net=Group.of(net, learn, eps=1e-5, max_grad_norm=learn["grad_norm"]))
        # A plain dict of numbers, which are compiled in as constants.
        self.cfg = {k: learn[k] for k in ("clip_ratio", "value_clip", "value_weight", "entropy_weight")}
        fuse_likelihood(net.head)
        self.fused = FusedSurrogate(self.cfg) if usable() else None
        self.watch(learn["target_kl"])
        self.gradient = self.optim.gradient(self.loss, "net")

    def loss(self, batch):
        outputs = self.net.of_rows(batch)
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], batch["action"])
        if self.fused is not None:
            return self.fused(log_prob, entropy, outputs[0], batch)
        return ppo_loss(log_prob, entropy, outputs[0], batch, self.cfg)

    def present(self, rows):
        """Log-probability and value of rows under the current policy, and the weight `trust` of each row."""
        outputs = self.net.of_rows(rows)
        log_prob = self.net.head.log_prob_entropy(outputs[1:], rows["action"])[0]
        trust = ops.clamp(ops.exp(log_prob - rows["log_prob"]), max=WEIGHT_BOUND)
        return {"present_log_prob": log_prob, "present_value": outputs[0], "trust": trust}

    def construct(self, batch):
        if "trust" in batch:
            batch["log_prob"], batch["value"] = batch["present_log_prob"], batch["present_value"]
            batch["advantage"] = batch["advantage"] * batch["trust"]
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.move(grads, batch, metrics)
        return metrics


class PPO(ActorCriticPolicy):
    """Proximal policy optimization for Discrete, MultiDiscrete and Box actions."""

    name = "ppo"

    def make_root(self, net: ActorCritic, rng: np.random.Generator) -> PPOCell:
        return PPOCell(net, self.cfg.learn)

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = dict.fromkeys(("log_prob", "value", "advantage", "return"), Field())
        return {**self.obs_fields("obs"), "action": self.action_field, **numbers, **self.memory_fields}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        old = {ALL_ROWS: self.all_rows(batch)} if batch.lag > 0 else {}
        return Inputs({"advantage": self.advantage(batch)}, {**self.root.optim.rates(progress), **old})
