"""The loss of an actor with a state value as one kernel with a gradient (compiled); `policy_gradient.advantage_loss` is
the plain form."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel
from minding.policies.ops import lean

_RESULTS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl")


class FusedAdvantageLoss(nn.Cell):
    """`policy_gradient.advantage_loss` in one kernel, and its gradient with respect to log-probability, entropy and
    value in another. Sums are computed in a fixed order.

    Args:
      cfg: configuration with `value_weight` and `entropy_weight`.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__()
        self.settings = ms.Tensor(np.array([cfg["value_weight"], cfg["entropy_weight"]], np.float32))
        self.equal_weight = ms.Tensor(np.float32(1.0))
        self.loss = _advantage_loss()

    def construct(self, log_prob, entropy, value, batch):
        """Returns (loss, metrics by name), scalars; for the arguments see `policy_gradient.advantage_loss`."""
        weight = self.equal_weight
        if "valid" in batch:
            weight = batch["valid"]
        results = self.loss(
            log_prob, entropy, value, batch["log_prob"], batch["advantage"], batch["return"], weight, self.settings
        )
        return lean.item(results, 0), lean.named(_RESULTS, results)


@functools.cache
def _advantage_loss() -> Any:
    slopes = kernel(
        "advantage_loss_gradient",
        lambda log_prob, entropy, value, *others: (log_prob, entropy, value),
        lambda log_prob, entropy, value, *others: (log_prob, entropy, value),
    )

    def gradient(log_prob, entropy, value, old, advantage, target, weight, settings, out, dout):
        dlog_prob, dentropy, dvalue = slopes(
            log_prob, entropy, value, old, advantage, target, weight, settings, dout[0]
        )
        zeros = ops.ZerosLike()
        constants = (zeros(old), zeros(advantage), zeros(target), zeros(weight), zeros(settings))
        return dlog_prob, dentropy, dvalue, *constants

    return kernel(
        "advantage_loss",
        lambda log_prob, *others: tuple(() for _ in _RESULTS),
        lambda log_prob, *others: tuple(log_prob for _ in _RESULTS),
        gradient,
    )
