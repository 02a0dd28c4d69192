"""The clipped surrogate objective as one kernel with its gradient (compiled); `ppo.ppo_loss` is the plain form."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel
from minding.policies.ops import lean

_RESULTS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


class FusedSurrogate(nn.Cell):
    """What `ppo.ppo_loss` computes, in one kernel, and its gradient for log-probability, entropy and value in another.

    Sums are taken in a fixed order. Where the plain form multiplies an infinite ratio by the slope 0 of the clipped
    objective, which gives NaN, the gradient is 0.

    Args:
      cfg: `clip_ratio`, `value_clip`, `value_weight` and `entropy_weight`.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__()
        clip = cfg["clip_ratio"]
        settings = [clip, clip if cfg["value_clip"] else -1.0, cfg["value_weight"], cfg["entropy_weight"]]
        self.settings = ms.Tensor(np.array(settings, np.float32))
        self.equal_weight = ms.Tensor(np.float32(1.0))
        self.surrogate = _clipped_surrogate()

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
def _clipped_surrogate() -> Any:
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
