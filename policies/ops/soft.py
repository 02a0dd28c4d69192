"""Objectives of maximum-entropy learning with two critics (compiled).

Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905, eq. 5 and 7, with the minimum of two critics as in section 5.
All arrays are float32 (B,); the temperature `alpha` and losses are scalars.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from minding.engine.process.runtime import ops
from minding.policies.kernels import kernel, usable
from minding.policies.ops.values import half_square, smaller


def soft_target(reward, discount, terminated, q1, q2, log_prob, alpha):
    """The target of the critics; `discount` is gamma^k, and q1, q2 and `log_prob` belong to the next action.

    y = R + gamma^k (1 - terminated) [ min(Q_1, Q_2) - alpha log pi ]
    """
    next_value = ops.minimum(q1, q2) - alpha * log_prob
    return reward + discount * (1.0 - terminated) * next_value


def twin_target(reward, discount, terminated, q1, q2):
    """The target of the critics without entropy (Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477, eq. 10).

    y = R + gamma^k (1 - terminated) min(Q_1, Q_2)
    """
    return reward + discount * (1.0 - terminated) * ops.minimum(q1, q2)


def twin_loss(q1, q2, target):
    """Squared errors of both critics; returns (loss, mean of q1). No gradient flows through the target or the mean.

    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    """
    target = ops.stop_gradient(target)
    loss = (half_square(q1 - target) + half_square(q2 - target)).mean()
    return loss, ops.stop_gradient(q1).mean()


def soft_policy_loss(q1, q2, log_prob, alpha):
    """Loss of the actor; q1, q2 and `log_prob` belong to its action. Returns (loss, mean log-probability). No gradient
    flows through the temperature or the mean.

    L_pi = mean[ alpha log pi - min(Q_1, Q_2) ]
    """
    loss = (ops.stop_gradient(alpha) * log_prob - smaller(q1, q2)).mean()
    return loss, ops.stop_gradient(log_prob).mean()


class TwinObjectives(NamedTuple):
    """`twin_target` and `twin_loss`."""

    target: Callable[..., Any]
    critic_loss: Callable[..., Any]


def twin_objectives() -> TwinObjectives:
    """The objectives, each as one kernel if kernels are usable."""
    if not usable():
        return TwinObjectives(twin_target, twin_loss)
    return TwinObjectives(_fused_target("twin_target"), _fused_twin_loss())


class SoftObjectives(NamedTuple):
    """`soft_target`, `twin_loss` and `soft_policy_loss`."""

    target: Callable[..., Any]
    critic_loss: Callable[..., Any]
    policy_loss: Callable[..., Any]


def soft_objectives() -> SoftObjectives:
    """The objectives, each as one kernel if kernels are usable, as in `twin_objectives`."""
    if not usable():
        return SoftObjectives(soft_target, twin_loss, soft_policy_loss)
    return SoftObjectives(_fused_target("soft_target"), _fused_twin_loss(), _fused_policy_loss())


@functools.cache
def _fused_target(name: str) -> Any:
    return kernel(name, lambda reward, *others: reward, lambda reward, *others: reward)


@functools.cache
def _fused_twin_loss() -> Any:
    slope = kernel("twin_loss_gradient", lambda q1, q2, target, dloss: (q1, q2), lambda q1, q2, target, dloss: (q1, q2))

    def gradient(q1, q2, target, out, dout):
        dq1, dq2 = slope(q1, q2, target, dout[0])
        return dq1, dq2, ops.ZerosLike()(target)

    return kernel("twin_loss", lambda q1, q2, target: ((), ()), lambda q1, q2, target: (q1, q1), gradient)


@functools.cache
def _fused_policy_loss() -> Any:
    slope = kernel(
        "soft_policy_loss_gradient",
        lambda q1, q2, log_prob, alpha, dloss: (q1, q2, log_prob),
        lambda q1, q2, log_prob, alpha, dloss: (q1, q2, log_prob),
    )

    def gradient(q1, q2, log_prob, alpha, out, dout):
        dq1, dq2, dlog_prob = slope(q1, q2, log_prob, alpha, dout[0])
        return dq1, dq2, dlog_prob, ops.ZerosLike()(alpha)

    return kernel(
        "soft_policy_loss",
        lambda q1, q2, log_prob, alpha: ((), ()),
        lambda q1, q2, log_prob, alpha: (q1, q1),
        gradient,
    )
