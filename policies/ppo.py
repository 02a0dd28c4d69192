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

With `kl_weight` above 0, the loss also has b mean[ KL(pi_old(.|s) || pi(.|s)) ] (eq. 8). After each update b is doubled
if the mean divergence over its gradient steps exceeds 1.5 `kl_aim`, and halved if it is below `kl_aim` / 1.5.

With memory (`model.memory`) the network is unrolled over each environment's part of the rollout, starting from the
memory before it, and gradients flow back to this start: back-propagation through time, truncated to the rollout. A
minibatch then consists of some of the environments; rows of resets are unrolled with the others and have weight 0 in
the means.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process import runtime
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array, LearnOutput
from minding.policies.families.actor_critic import OLD_PARAMS, ActorCriticPolicy, ProximalStep
from minding.policies.kernels import usable
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.ops.policy_gradient import FusedSurrogate, clipped_surrogate, row_mean
from minding.policies.settings.actor_critic import PPOSettings

WEIGHTS = (1e-6, 1e6)
"""Bounds of the weight of the divergence."""


def ppo_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one minibatch; `FusedSurrogate` is its form with this package's kernels.

    Args:
      log_prob, value: log-probability and value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name: the old `log_prob` and `value`, `advantage`, `return` and, if some rows do not count, `valid`,
        each float32 (B,).
    """
    clip, target, old_value = cfg["clip_ratio"], batch["return"], batch["value"]
    # Policy
    policy_loss, kl, clip_fraction = clipped_surrogate(log_prob, batch, batch, clip)
    # Value
    error = ops.square(value - target)
    if cfg["value_clip"]:
        clipped = old_value + ops.clamp(value - old_value, -clip, clip)
        error = ops.maximum(error, ops.square(clipped - target))
    value_loss = 0.5 * row_mean(error, batch)
    # Total
    entropy = row_mean(entropy, batch)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    return loss, policy_loss, value_loss, entropy, kl, clip_fraction


class PPOCell(ProximalStep):
    """Root cell: network and optimizer."""

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn, ("clip_ratio", "value_clip", "value_weight", "entropy_weight"))
        self.fused = FusedSurrogate(self.cfg) if usable() else None
        if learn.get("kl_weight"):
            self.compares = True
            self.proximal_names = (*self.proximal_names, OLD_PARAMS)
            self.metrics = (*self.metrics, "divergence", "kl_weight")
            weight = ms.Tensor(np.float32(learn["kl_weight"]))
            self.kl_weight = ms.Parameter(weight, name="kl_weight", requires_grad=False)

    def loss(self, batch):
        log_prob, entropy, value, params = self.evaluate_actions(batch)
        if self.fused is not None:
            results = self.fused(log_prob, entropy, value, batch)
        else:
            results = ppo_loss(log_prob, entropy, value, batch, self.cfg)
        loss, metrics = results[0], self.named(results)
        if self.compares:
            divergence = self.divergence(batch, params)
            loss = loss + self.kl_weight * divergence
            metrics["loss"], metrics["divergence"], metrics["kl_weight"] = loss, divergence, self.kl_weight
        return loss, metrics

    def construct(self, batch):
        return self.step(self.with_proximal(batch))


class PPO(ActorCriticPolicy):
    """Proximal policy optimization for Discrete, MultiDiscrete and Box actions."""

    cfg: PPOSettings
    name = "ppo"
    step_class = PPOCell
    scalar_fields = ("log_prob", "value", "advantage", "return")
    host_fields = ("advantage",)

    def learn(self, batch: IndexedBatch, progress: float | Array = 0.0) -> LearnOutput:
        output = super().learn(batch, progress)
        if "divergence" in output.metrics:
            self._adapt(output.metrics["divergence"])
        return output

    def _adapt(self, divergence: float) -> None:
        """Moves the weight of the penalty, if the mean divergence of an update is far from its aim."""
        aim, weight = self.cfg.learn.kl_aim, self.root.kl_weight
        factor = 2.0 if divergence > 1.5 * aim else 0.5 if divergence < aim / 1.5 else 1.0
        runtime.assign(weight, np.clip(factor * weight.asnumpy(), *WEIGHTS).astype(np.float32))

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs({"advantage": self.advantage(batch)}, {**self.constants(progress), **self.all_rows(batch)})
