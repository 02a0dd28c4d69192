"""The clipped surrogate objective of proximal policy optimization (compiled), and PPO's loss as one kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel
from minding.policies.ops import lean
from minding.policies.ops.policy_gradient import row_mean

_RESULTS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def clipped_surrogate(log_prob, batch, counted, clip):
    """Loss of the policy (Schulman et al., 2017, https://arxiv.org/abs/1707.06347, eq. 7).

        r = pi(a|s) / pi_old(a|s),   L = mean[ max(-A r, -A clip(r, 1-e, 1+e)) ]

    Args:
      log_prob: log-probability by the current network, float32 (B,).
      batch: by name `log_prob`, the old log-probability, and `advantage`, float32 (B,) each.
      counted: by name `valid`, float32 (B,), if some rows do not count; see `row_mean`.
      clip: e, a Python number.

    Returns:
      (loss, by name `approx_kl` and `clip_fraction`), scalars. The KL estimate is ``mean[(r - 1) - log r]``
      (http://joschu.net/blog/kl-approx.html).
    """
    advantage = batch["advantage"]
    log_ratio = log_prob - batch["log_prob"]
    ratio = ops.exp(log_ratio)
    surrogate = ops.maximum(-advantage * ratio, -advantage * ops.clamp(ratio, 1.0 - clip, 1.0 + clip))
    return row_mean(surrogate, counted), {
        "approx_kl": row_mean(ratio - 1.0 - log_ratio, counted),
        "clip_fraction": row_mean(ops.cast(ops.abs(ratio - 1.0) > clip, ms.float32), counted),
    }


class FusedSurrogate(nn.Cell):
    """`ppo.ppo_loss` in one kernel, and its gradient with respect to log-probability, entropy and value in another.

    Sums are computed in a fixed order. Where the plain form multiplies an infinite ratio by the slope 0 of the clipped
    objective, which gives NaN, the gradient is 0.

    Args:
      cfg: configuration with `clip_ratio`, `value_clip`, `value_weight` and `entropy_weight`.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__()
        clip = cfg["clip_ratio"]
        settings = [clip, clip if cfg["value_clip"] else -1.0, cfg["value_weight"], cfg["entropy_weight"]]
        self.settings = ms.Tensor(np.array(settings, np.float32))
        self.equal_weight = ms.Tensor(np.float32(1.0))
        self.surrogate = _fused_surrogate()

    def construct(self, log_prob, entropy, value, batch):
        """Returns (loss, metrics by name), scalars; for the arguments see `ppo.ppo_loss`."""
        weight = self.equal_weight
        if "valid" in batch:
            weight = batch["valid"]
        old = (batch["log_prob"], batch["value"])
        results = self.surrogate(
            log_prob, entropy, value, old[0], old[1], batch["advantage"], batch["return"], weight, self.settings
        )
        return lean.item(results, 0), lean.named(_RESULTS, results)


@functools.cache
def _fused_surrogate() -> Any:
    slopes = kernel(
        "clipped_surrogate_gradient",
        lambda log_prob, entropy, value, *others: (log_prob, entropy, value),
        lambda log_prob, entropy, value, *others: (log_prob, entropy, value),
    )

    def gradient(log_prob, entropy, value, old, old_value, advantage, target, weight, settings, out, dout):
        given = (log_prob, entropy, value, old, old_value, advantage, target, weight, settings)
        dlog_prob, dentropy, dvalue = slopes(*given, dout[0])
        zeros = ops.ZerosLike()
        constants = (zeros(old), zeros(old_value), zeros(advantage), zeros(target), zeros(weight), zeros(settings))
        return dlog_prob, dentropy, dvalue, *constants

    return kernel(
        "clipped_surrogate",
        lambda log_prob, *others: tuple(() for _ in _RESULTS),
        lambda log_prob, *others: tuple(log_prob for _ in _RESULTS),
        gradient,
    )
