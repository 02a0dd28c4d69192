"""The loss of an actor with a state value, in a plain form and, with this package's kernels, as one kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel, usable
from minding.policies.ops.policy_gradient import policy_loss, row_mean

ADVANTAGE_METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl")
"""Names of the results of `advantage_loss`."""


def advantage_loss(log_prob, entropy, value, batch, cfg):
    """The loss of an actor with a state value (Mnih et al., 2016, https://arxiv.org/abs/1602.01783, algorithm S3).

        L = -mean[ A log pi(a|s) ] + c_v 1/2 mean[ (V(s) - R)^2 ] - c_e mean[ H ]

    Args:
      log_prob, value: log-probability and value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name `log_prob` (of the acting policy), `advantage`, `return` and, if some rows do not count, `valid`,
        each float32 (B,).
    """
    actor_loss = policy_loss(log_prob, batch["advantage"], batch)
    value_loss = 0.5 * row_mean(ops.square(value - batch["return"]), batch)
    entropy = row_mean(entropy, batch)
    loss = actor_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    log_ratio = log_prob - batch["log_prob"]
    kl = row_mean(ops.exp(log_ratio) - 1.0 - log_ratio, batch)
    return loss, actor_loss, value_loss, entropy, kl


class AdvantageLoss(nn.Cell):
    """`advantage_loss`; on CPU one kernel, and another for the gradient with respect to log-probability, entropy and
    value. The kernels compute sums in a fixed order."""

    def __init__(self, learn: Mapping[str, Any]) -> None:
        super().__init__()
        # A plain dict of numbers, which are compiled in as constants.
        self.cfg = {name: learn[name] for name in ("value_weight", "entropy_weight")}
        self.settings = ms.Tensor(np.array([*self.cfg.values()], np.float32))
        self.equal_weight = ms.Tensor(np.float32(1.0))
        self.fused = _advantage_loss() if usable() else None

    def construct(self, log_prob, entropy, value, batch):
        """Returns `ADVANTAGE_METRICS`, scalars; for the arguments see `advantage_loss`."""
        if self.fused is None:
            return advantage_loss(log_prob, entropy, value, batch, self.cfg)
        weight = self.equal_weight
        if "valid" in batch:
            weight = batch["valid"]
        return self.fused(
            log_prob, entropy, value, batch["log_prob"], batch["advantage"], batch["return"], weight, self.settings
        )


@functools.cache
def _advantage_loss() -> Any:
    slopes = kernel("advantage_loss_gradient", lambda log_prob, entropy, value, *others: (log_prob, entropy, value), 3)

    def gradient(log_prob, entropy, value, old, advantage, target, weight, settings, out, dout):
        dlog_prob, dentropy, dvalue = slopes(
            log_prob, entropy, value, old, advantage, target, weight, settings, dout[0]
        )
        zeros = ops.ZerosLike()
        constants = (zeros(old), zeros(advantage), zeros(target), zeros(weight), zeros(settings))
        return dlog_prob, dentropy, dvalue, *constants

    return kernel("advantage_loss", lambda *shapes: ((),) * len(ADVANTAGE_METRICS), len(ADVANTAGE_METRICS), gradient)
