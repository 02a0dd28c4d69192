"""Log-probabilities and entropies (compiled); `acting.sampling` draws from the same distributions.

All arrays are float32 unless int32 is given.
"""

import functools
import math
from typing import Any

from minding.engine.process.runtime import nn, ops
from minding.policies.kernels import kernel, usable
from minding.policies.ops import primitives

_LOG_2PI = math.log(2.0 * math.pi)


def categorical_log_prob_entropy(logits, action):
    """Log-probability and entropy of a categorical distribution.

        log p_a = l_a - log sum_b exp(l_b),   H = -sum_b p_b log p_b

    Args:
      logits: float32 (B, A).
      action: int32 (B,).

    Returns:
      (log-probability, entropy), each float32 (B,).
    """
    shifted = logits - ops.stop_gradient(primitives.largest(logits, keepdims=True))
    exp = ops.exp(shifted)
    total = exp.sum(axis=-1)
    log_total = ops.log(total)
    chosen = ops.squeeze(ops.gather_elements(shifted, 1, ops.expand_dims(action, -1)), -1)
    entropy = log_total - (exp * shifted).sum(axis=-1) / total
    return chosen - log_total, entropy


def gaussian_log_prob_entropy(mean, log_std, action):
    """Log-probability and entropy of a diagonal normal distribution.

    Args:
      mean: float32 (B, A).
      log_std: float32 (A,).
      action: float32 (B, A).

    Returns:
      (log-probability float32 (B,), entropy float32 scalar).
    """
    z = (action - mean) * ops.exp(-log_std)
    log_prob = -0.5 * ops.square(z).sum(axis=-1) - log_std.sum() - 0.5 * _LOG_2PI * log_std.shape[0]
    return log_prob, log_std.sum() + 0.5 * (1.0 + _LOG_2PI) * log_std.shape[0]


def categorical_divergence(old, new):
    """KL(old || new) of categorical distributions: ``sum_a p_a (log p_a - log q_a)``.

    Args:
      old, new: logits, float32 (B, A).

    Returns:
      float32 (B,).
    """
    log_p, log_q = _log_softmax(old), _log_softmax(new)
    return (ops.exp(log_p) * (log_p - log_q)).sum(axis=-1)


def _log_softmax(logits):
    # `ops.LogSoftmax` has no second derivative.
    shifted = logits - ops.stop_gradient(primitives.largest(logits, keepdims=True))
    return shifted - ops.log(ops.exp(shifted).sum(axis=-1, keepdims=True))


def gaussian_divergence(old_mean, old_log_std, mean, log_std):
    """KL(old || new) of diagonal normal distributions:

        sum_i log(s_i / s_old,i) + (s_old,i^2 + (m_old,i - m_i)^2) / (2 s_i^2) - 1/2

    Args:
      old_mean, mean: float32 (B, A).
      old_log_std, log_std: float32 (A,), or (B, A).

    Returns:
      float32 (B,).
    """
    precision = ops.exp(-2.0 * log_std)
    spread = log_std - old_log_std + 0.5 * ops.exp(2.0 * old_log_std) * precision - 0.5
    return (0.5 * ops.square(old_mean - mean) * precision).sum(axis=-1) + spread.sum(axis=-1)


def squashed_gaussian(mean, log_std, noise):
    """Reparametrised tanh-normal action and its log-probability (Haarnoja et al., 2018,
    https://arxiv.org/abs/1812.05905, eq. 26), in a form that does not overflow:

        a = tanh(u), u = mean + std * noise,   log p(a) = log N(u) - sum 2 (log 2 - u - softplus(-2u))

    Args:
      mean, log_std, noise: float32 (B, A); noise is standard normal.

    Returns:
      (action in (-1, 1), float32 (B, A); log-probability, float32 (B,)).
    """
    u = mean + ops.exp(log_std) * noise
    double = -2.0 * u
    # The terms that depend on the action, then the constant.
    terms = 2.0 * ops.Softplus()(double) - double - log_std - 0.5 * ops.square(noise)
    constant = (2.0 * math.log(2.0) + 0.5 * _LOG_2PI) * noise.shape[-1]
    return primitives.tanh(u), terms.sum(axis=-1) - constant


def normal_log_prob_entropy(mean, deviation, action):
    """Log-probability and entropy of independent normals whose standard deviations depend on the state.

    Args:
      mean, deviation, action: float32 (B, A).

    Returns:
      (log-probability, entropy), each float32 (B,).
    """
    log_std, z = ops.Log()(deviation), (action - mean) / deviation
    constant = 0.5 * _LOG_2PI * mean.shape[-1]
    log_prob = ops.ReduceSum()(-0.5 * ops.Square()(z) - log_std, -1) - constant
    return log_prob, ops.ReduceSum()(log_std, -1) + 0.5 * mean.shape[-1] + constant


class SquashedGaussian(nn.Cell):
    """`squashed_gaussian`, as one kernel on CPU, with a gradient with respect to mean and log standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.squash = _fused_squash() if usable() else squashed_gaussian

    def construct(self, mean, log_std, noise):
        return self.squash(mean, log_std, noise)


@functools.cache
def _fused_squash() -> Any:
    slope = kernel("squash_gradient", lambda action, log_std, noise, daction, dlog_prob: (action, action), 2)

    def gradient(mean, log_std, noise, out, dout):
        dmean, dlog_std = slope(out[0], log_std, noise, dout[0], dout[1])
        return dmean, dlog_std, ops.ZerosLike()(noise)

    return kernel("squash", lambda mean, log_std, noise: (mean, (mean[0],)), 2, gradient)


@functools.cache
def fused_categorical() -> Any:
    """The primitive ``(logits (B, S), actions int32 (B,) or (B, K), ends int32 (K,)) -> log-probability (B,), entropy
    (B,), logarithms of all probabilities (B, S)``, with the gradient of the first two results.

    The kernel handles K independent choices, whose logits are joined; `ends` has the end of each choice among the S
    logits.
    """
    slope = kernel("categorical_gradient", lambda log_p, action, ends, dlog_prob, dentropy: log_p)

    def gradient(logits, action, ends, out, dout):
        dlogits = slope(out[2], action, ends, dout[0], dout[1])
        return dlogits, ops.ZerosLike()(action), ops.ZerosLike()(ends)

    return kernel("categorical", lambda logits, action, ends: ((logits[0],), (logits[0],), logits), 3, gradient)


@functools.cache
def fused_normal() -> Any:
    """The primitive ``(mean (B, A), log standard deviation (A,), actions (B, ...)) -> log-probability (B,), entropy
    ()``, with the gradient with respect to mean and log standard deviation."""
    slopes = kernel("normal_gradient", lambda mean, log_std, action, dlog_prob, dentropy: (mean, log_std), 2)

    def gradient(mean, log_std, action, out, dout):
        dmean, dlog_std = slopes(mean, log_std, action, dout[0], dout[1])
        return dmean, dlog_std, ops.ZerosLike()(action)

    return kernel("normal", lambda mean, log_std, action: ((mean[0],), ()), 2, gradient)
