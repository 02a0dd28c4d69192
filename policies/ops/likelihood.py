"""Log-probability and entropy in one kernel per distribution, with gradient (compiled); `distributions` has the plain
forms.

All arrays are float32 unless int32 is given.
"""

from __future__ import annotations

import functools
from typing import Any

from minding.engine.process.runtime import ops
from minding.policies.kernels import kernel


@functools.cache
def fused_categorical() -> Any:
    """The primitive ``(logits (B, S), actions int32 (B,) or (B, K), ends int32 (K,)) -> log-probability (B,), entropy
    (B,), logarithms of all probabilities (B, S)``, with the gradient of the first two results.

    The kernel handles K independent choices, whose logits are joined; `ends` has the end of each choice among the S
    logits.
    """
    slope = kernel(
        "categorical_gradient",
        lambda log_p, action, ends, dlog_prob, dentropy: log_p,
        lambda log_p, action, ends, dlog_prob, dentropy: log_p,
    )

    def gradient(logits, action, ends, out, dout):
        dlogits = slope(out[2], action, ends, dout[0], dout[1])
        return dlogits, ops.ZerosLike()(action), ops.ZerosLike()(ends)

    return kernel(
        "categorical",
        lambda logits, action, ends: ((logits[0],), (logits[0],), logits),
        lambda logits, action, ends: (logits, logits, logits),
        gradient,
    )


@functools.cache
def fused_normal() -> Any:
    """The primitive ``(mean (B, A), log standard deviation (A,), actions (B, ...)) -> log-probability (B,), entropy
    ()``, with the gradient with respect to mean and log standard deviation."""
    slopes = kernel(
        "normal_gradient",
        lambda mean, log_std, action, dlog_prob, dentropy: (mean, log_std),
        lambda mean, log_std, action, dlog_prob, dentropy: (mean, log_std),
    )

    def gradient(mean, log_std, action, out, dout):
        dmean, dlog_std = slopes(mean, log_std, action, dout[0], dout[1])
        return dmean, dlog_std, ops.ZerosLike()(action)

    return kernel(
        "normal",
        lambda mean, log_std, action: ((mean[0],), ()),
        lambda mean, log_std, action: (mean, mean),
        gradient,
    )
