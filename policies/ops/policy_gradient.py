"""Losses of policy gradients, each in a plain form and, with this package's kernels, as one kernel (compiled)."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel
from minding.policies.ops import primitives

SURROGATE_METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
"""Names of the results of `ppo.ppo_loss` and `FusedSurrogate`."""


def row_mean(x, batch):
    """The mean over the rows that count.

    Args:
      x: float32 (B,), or a scalar, which is returned unchanged.
      batch: arrays by name; `valid`, float32 (B,), is 0 for rows that do not count. Without `valid`, all rows count.
    """
    if "valid" not in batch or x.ndim == 0:
        return primitives.mean(x)
    return primitives.mean(x * batch["valid"]) / ops.maximum(primitives.mean(batch["valid"]), 1e-8)


def policy_loss(log_prob, advantage, batch):
    """The loss whose gradient is the policy gradient (Williams, 1992, https://doi.org/10.1007/BF00992696).

        L = -mean[ A log pi(a|s) ]

    Args:
      log_prob: log-probability under the current policy, float32 (B,).
      advantage: advantage of the action over the expected value, float32 (B,); no gradient flows through it.
    """
    return -row_mean(ops.stop_gradient(advantage) * log_prob, batch)


def clipped_surrogate(log_prob, batch, counted, clip):
    """Loss of the policy (Schulman et al., 2017, https://arxiv.org/abs/1707.06347, eq. 7).

        r = pi(a|s) / pi_old(a|s),   L = mean[ max(-A r, -A clip(r, 1-e, 1+e)) ]

    Args:
      log_prob: log-probability by the current network, float32 (B,).
      batch: by name `log_prob`, the old log-probability, and `advantage`, float32 (B,) each.
      counted: by name `valid`, float32 (B,), if some rows do not count; see `row_mean`.
    """
    advantage = batch["advantage"]
    log_ratio = log_prob - batch["log_prob"]
    ratio = ops.exp(log_ratio)
    surrogate = ops.maximum(-advantage * ratio, -advantage * ops.clamp(ratio, 1.0 - clip, 1.0 + clip))
    clipped = row_mean(ops.cast(ops.abs(ratio - 1.0) > clip, ms.float32), counted)
    return row_mean(surrogate, counted), row_mean(ratio - 1.0 - log_ratio, counted), clipped


class FusedSurrogate(nn.Cell):
    """`ppo.ppo_loss` in one kernel, and its gradient with respect to log-probability, entropy and value in another.

    Sums are computed in a fixed order. Where the plain form multiplies an infinite ratio by the slope 0 of the clipped
    objective, which gives NaN, the gradient is 0.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__()
        clip = cfg["clip_ratio"]
        settings = [clip, clip if cfg["value_clip"] else -1.0, cfg["value_weight"], cfg["entropy_weight"]]
        self.settings = ms.Tensor(np.array(settings, np.float32))
        self.equal_weight = ms.Tensor(np.float32(1.0))
        self.surrogate = _fused_surrogate()

    def construct(self, log_prob, entropy, value, batch):
        """Returns `SURROGATE_METRICS`, scalars; for the arguments see `ppo.ppo_loss`."""
        weight = self.equal_weight
        if "valid" in batch:
            weight = batch["valid"]
        old = (batch["log_prob"], batch["value"])
        return self.surrogate(
            log_prob, entropy, value, old[0], old[1], batch["advantage"], batch["return"], weight, self.settings
        )


@functools.cache
def _fused_surrogate() -> Any:
    slopes = kernel(
        "clipped_surrogate_gradient", lambda log_prob, entropy, value, *others: (log_prob, entropy, value), 3
    )

    def gradient(log_prob, entropy, value, old, old_value, advantage, target, weight, settings, out, dout):
        given = (log_prob, entropy, value, old, old_value, advantage, target, weight, settings)
        dlog_prob, dentropy, dvalue = slopes(*given, dout[0])
        zeros = ops.ZerosLike()
        constants = (zeros(old), zeros(old_value), zeros(advantage), zeros(target), zeros(weight), zeros(settings))
        return dlog_prob, dentropy, dvalue, *constants

    return kernel("clipped_surrogate", lambda *shapes: ((),) * len(SURROGATE_METRICS), len(SURROGATE_METRICS), gradient)
