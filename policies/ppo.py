"""PPO: clipped policy gradients over several passes of the same rollout.

Schulman et al., 2017, https://arxiv.org/abs/1707.06347, eq. 7 and 9; the value clip, the orthogonal start and the
advantage normalisation follow Huang et al., 2022, https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.

    r_t = pi(a_t|s_t) / pi_old(a_t|s_t)
    L = mean[ max(-A r, -A clip(r, 1-e, 1+e)) ] + c_v L_value - c_e H
    L_value = 1/2 mean[ max((V - R)^2, (V_old + clip(V - V_old, -e, e) - R)^2) ]

In an asynchronous run the policy that acted, mu, is older than the one that an update starts from, pi_old. The ratio is
still clipped around pi_old, and A is weighted by min(w, pi_old(a|s) / mu(a|s)), w = 2: the decoupled objective of
Hilton et al., 2022, https://arxiv.org/abs/2110.00641, eq. 2, with a bounded weight. Clipped around mu, most of the
gradient would be lost: the updates between the two have used up the range. Without lag both are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.core.actor_critic import ActorCriticPolicy
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.optim import Adam
from minding.policies.networks.rows import Rows
from minding.policies.ops import lean

WEIGHT_BOUND = 2.0
"""Of the weight of rows that an older policy collected."""
METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")


def ppo_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one minibatch.

    Args:
      log_prob, value: float32 (B,), of the current network; entropy: float32 (B,) or scalar.
      batch: (old log-probability, advantage, return, old value), each float32 (B,).
      cfg: the `learn` part of the configuration.

    Returns:
      (loss, policy loss, value loss, entropy, KL estimate, clipped share), scalars. The KL estimate is
      ``mean[(r - 1) - log r]`` (http://joschu.net/blog/kl-approx.html).
    """
    old_log_prob, advantage, target, old_value = batch
    clip = cfg["clip_ratio"]
    # Ratio and surrogate
    log_ratio = log_prob - old_log_prob
    ratio = ops.exp(log_ratio)
    surrogate = ops.maximum(-advantage * ratio, -advantage * ops.clamp(ratio, 1.0 - clip, 1.0 + clip))
    policy_loss = lean.mean(surrogate)
    # Value
    error = ops.square(value - target)
    if cfg["value_clip"]:
        clipped = old_value + ops.clamp(value - old_value, -clip, clip)
        error = ops.maximum(error, ops.square(clipped - target))
    value_loss = 0.5 * lean.mean(error)
    # Total
    entropy = lean.mean(entropy)
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    kl = lean.mean(ratio - 1.0 - log_ratio)
    clip_fraction = lean.mean(ops.cast(ops.abs(ratio - 1.0) > clip, ms.float32))
    return loss, policy_loss, value_loss, entropy, kl, clip_fraction


class PPOCell(nn.Cell):
    """Root cell: network and optimizer; `construct` performs all gradient steps of an iteration."""

    def __init__(self, net: ActorCritic, policy: PPO) -> None:
        super().__init__()
        learn = policy.cfg.learn
        self.net = net
        self.optim = Adam(net.trainable_params(), eps=1e-5, max_grad_norm=learn.grad_norm)
        names = [*policy.obs_fields("obs"), "action", "log_prob", "return", "value"]
        self.rows = Rows(policy.layout, names)
        self.num_leaves = len(policy.leaves)
        # A plain dict of numbers: they are compiled in as constants.
        self.cfg = {k: learn[k] for k in ("clip_ratio", "value_clip", "value_weight", "entropy_weight")}
        self.kl_limit = 1.5 * learn.target_kl if learn.target_kl else float("inf")
        # The step, its KL estimate and the sums of the metrics before the first one.
        self.zeros = (ms.Tensor(np.int32(0)), ms.Tensor(np.float32(0)), ms.Tensor(np.zeros(len(METRICS), np.float32)))
        self.gradient = ms.value_and_grad(self.loss, None, self.optim.params, has_aux=True)

    def loss(self, obs, action, batch):
        outputs = self.net(obs)
        log_prob, entropy = self.net.head.log_prob_entropy(outputs[1:], action)
        return ppo_loss(log_prob, entropy, outputs[0], batch, self.cfg)

    def present(self, rows, tables):
        """Log-probability and value of rows under the current policy, and the rows' weights, each float32 (R,)."""
        fields = self.rows(rows, tables)
        outputs = self.net(fields[: self.num_leaves])
        action, acted = fields[self.num_leaves : self.num_leaves + 2]
        log_prob = self.net.head.log_prob_entropy(outputs[1:], action)[0]
        return log_prob, outputs[0], ops.clamp(ops.exp(log_prob - acted), max=WEIGHT_BOUND)

    def construct(self, inputs, tables):
        """Inputs: index int32 (K, B), advantage float32 (K, B), learning rate (1,); with rows that an older policy
        collected also the numbers of all rows, int32 (R,).

        Returns the sums of `METRICS` over the steps made, then the number of steps.
        """
        index, advantage, learning_rate = inputs[:3]
        start: Any = self.present(inputs[3], tables) if len(inputs) == 4 else ()
        steps = index.shape[0]
        i, kl, total = self.zeros
        while i < steps and kl <= self.kl_limit:
            chosen = lean.entry(index, i)
            fields = self.rows(chosen, tables)
            action, old_log_prob, target, old_value = fields[self.num_leaves :]
            weighted = lean.entry(advantage, i)
            if len(start) == 3:
                old_log_prob, old_value = ops.gather(start[0], chosen, 0), ops.gather(start[1], chosen, 0)
                weighted = weighted * ops.gather(start[2], chosen, 0)
            (loss, policy_loss, value_loss, entropy, kl, clipped), grads = self.gradient(
                fields[: self.num_leaves], action, (old_log_prob, weighted, target, old_value)
            )
            norm = self.optim(grads, learning_rate, (loss, kl))
            total = total + lean.stacked((loss, policy_loss, value_loss, entropy, kl, clipped, norm))
            i = i + 1
        return ops.concat((total, ops.expand_dims(ops.cast(i, ms.float32), 0)))


class PPO(ActorCriticPolicy):
    """Proximal policy optimisation for Discrete, MultiDiscrete and Box actions."""

    name = "ppo"

    def _root(self, net: ActorCritic, rng: np.random.Generator) -> PPOCell:
        return PPOCell(net, self)

    @property
    def row_fields(self) -> dict[str, Field]:
        number = Field()
        return {
            **self.obs_fields("obs"),
            "action": self.action_field,
            **dict.fromkeys(("log_prob", "value", "advantage", "return"), number),
        }

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        cfg = self.cfg.learn
        advantage = batch.layout.read(batch.tables.host, "advantage")[batch.index]
        if cfg.normalize_advantage:
            # What becomes infinite here makes the loss so, which is an error that says more.
            with np.errstate(over="ignore", invalid="ignore"):
                mean, std = advantage.mean(axis=1, keepdims=True), advantage.std(axis=1, keepdims=True)
                advantage = (advantage - mean) / (std + 1e-8)
        rate = self.learning_rate(progress)
        inputs = [batch.index, advantage, np.array(rate, np.float32)]
        if batch.lag > 0:
            inputs.append(np.arange(batch.tables.rows, dtype=np.int32))
        result = self._update(batch.tables, *inputs)
        steps = int(result[-1])
        self.update_normalizers(batch)
        metrics = {name: float(value) / steps for name, value in zip(METRICS, result)}
        return {**metrics, "learning_rate": rate, "grad_steps": steps}
