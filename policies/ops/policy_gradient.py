"""Losses of policy gradients, without and with a state value (compiled)."""

from __future__ import annotations

from minding.engine.process.runtime import ops
from minding.policies.ops import lean


def row_mean(x, batch):
    """The mean over the rows that count.

    Args:
      x: float32 (B,), or a scalar, which is returned unchanged.
      batch: arrays by name; `valid`, float32 (B,), is 0 for rows that do not count. Without `valid`, all rows count.
    """
    if "valid" not in batch or x.ndim == 0:
        return lean.mean(x)
    return lean.mean(x * batch["valid"]) / ops.maximum(lean.mean(batch["valid"]), 1e-8)


def policy_loss(log_prob, advantage, batch):
    """The loss whose gradient is the policy gradient (Williams, 1992, https://doi.org/10.1007/BF00992696).

        L = -mean[ A log pi(a|s) ]

    Args:
      log_prob: log-probability under the current policy, float32 (B,).
      advantage: advantage of the action over the expected value, float32 (B,); no gradient flows through it.
      batch: the batch, see `row_mean`.

    Returns:
      The loss, a scalar.
    """
    return -row_mean(ops.stop_gradient(advantage) * log_prob, batch)


def advantage_loss(log_prob, entropy, value, batch, cfg):
    """The loss of an actor with a state value (Mnih et al., 2016, https://arxiv.org/abs/1602.01783, algorithm S3).

        L = -mean[ A log pi(a|s) ] + c_v 1/2 mean[ (V(s) - R)^2 ] - c_e mean[ H ]

    Args:
      log_prob, value: log-probability and value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name `log_prob` (of the acting policy), `advantage`, `return` and, if some rows do not count, `valid`,
        each float32 (B,).
      cfg: configuration with `value_weight` (c_v) and `entropy_weight` (c_e).

    Returns:
      (loss, metrics by name), scalars. The KL estimate is ``mean[(r - 1) - log r]``
      (http://joschu.net/blog/kl-approx.html).
    """
    actor_loss = policy_loss(log_prob, batch["advantage"], batch)
    value_loss = 0.5 * row_mean(ops.square(value - batch["return"]), batch)
    entropy = row_mean(entropy, batch)
    loss = actor_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    log_ratio = log_prob - batch["log_prob"]
    return loss, {
        "loss": loss,
        "policy_loss": actor_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": row_mean(ops.exp(log_ratio) - 1.0 - log_ratio, batch),
    }
