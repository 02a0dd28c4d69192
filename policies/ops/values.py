"""Targets and losses of values (compiled).

Objectives of several critics take their values q as float32 (N, B); other arrays are (B,), and the temperature and
losses are scalars. Those of maximum-entropy learning: Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905, eq. 5
and 7, with the minimum of the critics as in section 5.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from minding.engine.data.returns import RESCALE
from minding.engine.process.runtime import ops
from minding.policies.kernels import kernel, usable
from minding.policies.ops import primitives
from minding.policies.ops.primitives import step_after


def chosen_value(q, action):
    """Q(s, a) of the chosen action: q float32 (B, A), action int (B,) -> float32 (B,); also with a leading axis T."""
    return ops.Squeeze(-1)(ops.GatherD()(q, q.ndim - 1, ops.ExpandDims()(action, -1)))


def chosen_atoms(atoms, action):
    """The atoms of the chosen action: float32 (B, A, N), int32 (B,) -> float32 (B, N)."""
    rows, _, count = atoms.shape
    index = ops.BroadcastTo((rows, 1, count))(ops.Reshape()(action, (rows, 1, 1)))
    return ops.Squeeze(1)(ops.GatherD()(atoms, 1, index))


def half_square(error):
    """e^2/2 for any shape, written so that the gradient, e, takes one kernel."""
    constant = ops.stop_gradient(error)
    return constant * (error - 0.5 * constant)


def smaller(a, b):
    """min(a, b) for any shape, NaN if one of them is NaN. The gradient flows to b if both are equal, and takes half as
    many kernels as the gradient of `ops.minimum`."""
    first = ops.LogicalOr()(a < b, a != a)
    return ops.select(ops.stop_gradient(first), a, b)


def huber(error):
    """Huber loss with threshold 1 (Huber, 1964): e^2/2 where |e| <= 1, else |e| - 1/2; any shape.

    Written as ``c (e - c/2)``, where c is e clipped to +-1 and treated as a constant, so that c is also the gradient.
    This takes a third of the kernels of a gradient through branches.
    """
    clipped = ops.stop_gradient(ops.clamp(error, -1.0, 1.0))
    return clipped * (error - 0.5 * clipped)


def rescaled(x):
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al., 2018, https://arxiv.org/abs/1805.11593, section 3.2);
    float32 of any shape. Written without a difference of nearly equal numbers."""
    return x / (ops.Sqrt()(ops.Abs()(x) + 1.0) + 1.0) + RESCALE * x


def unscaled(x):
    """The inverse of `rescaled`, ``sign(x) (((sqrt(1 + 4 eps u) - 1) / (2 eps))^2 - 1)`` with ``u = |x| + 1 + eps``."""
    u = ops.Abs()(x) + (1.0 + RESCALE)
    root = 2.0 * u / (ops.Sqrt()(4.0 * RESCALE * u + 1.0) + 1.0)
    return ops.Sign()(x) * (root * root - 1.0)


def accumulated(x, factor):
    """The sums y_t = x_t + factor_t y_{t+1} over time, where y of the last row is x; arguments float32 (T, ...).

    This takes log2(T) rounds, each of which doubles the reach of the sums. Rows of zeros at the end leave the other
    rows bit-identical.
    """
    steps, reach = x.shape[0], 1
    while reach < steps:
        x = x + factor * _ahead(x, reach)
        factor = factor * _ahead(factor, reach)
        reach = 2 * reach
    return x


def _ahead(x, count):
    """x_{t + count}, (T, ...), with zeros after the last row."""
    return ops.Concat(0)((primitives.part(x, count, x.shape[0] - count), ops.ZerosLike()(primitives.part(x, 0, count))))


def value_loss(q, action, target):
    """Huber loss between chosen values and targets.

    Args:
      q: float32 (B, A), or (T, B, A).
      action: int32 (B,), or (T, B).
      target: float32, shaped like `action`; no gradient flows into it.

    Returns:
      (loss, chosen value, absolute error), each float32, shaped like `action`.
    """
    chosen = chosen_value(q, action)
    error = chosen - ops.stop_gradient(target)
    return huber(error), chosen, ops.Abs()(ops.stop_gradient(error))


def one_step(batch, value):
    """R + gamma^k (1 - terminated) v, where v belongs to the successor: float32, shaped like v, (B,) or (B, N).

    Args:
      batch: by name `reward`, `discount` (gamma^k) and `terminated`, float32 (B,) each.
    """
    reward, decay = batch["reward"], batch["discount"] * (1.0 - batch["terminated"])
    if value.ndim == 2:
        reward, decay = ops.ExpandDims()(reward, -1), ops.ExpandDims()(decay, -1)
    return reward + decay * value


def lowest(q):
    """min_i Q_i: (N, ...) -> (...)."""
    return ops.ReduceMin()(q, 0)


def soft_target(reward, discount, terminated, q, log_prob, alpha):
    """The target of the critics; `discount` is gamma^k, and q and `log_prob` belong to the next action.

    y = R + gamma^k (1 - terminated) [ min_i Q_i - alpha log pi ]
    """
    return reward + discount * (1.0 - terminated) * (lowest(q) - alpha * log_prob)


def value_target(reward, discount, terminated, q):
    """The target of the critics without entropy (Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477, eq. 10).

    y = R + gamma^k (1 - terminated) min_i Q_i
    """
    return reward + discount * (1.0 - terminated) * lowest(q)


def critic_loss(q, target):
    """Squared errors of all critics; returns (loss, mean of the first one's values). No gradient flows through the
    target or the mean.

    L_Q = mean[ sum_i 1/2 (Q_i - y)^2 ]
    """
    loss = ops.ReduceSum()(half_square(q - ops.stop_gradient(target)), 0).mean()
    return loss, ops.Unstack()(ops.stop_gradient(q))[0].mean()


def soft_policy_loss(q, log_prob, alpha):
    """Loss of the actor; q and `log_prob` belong to its action. Returns (loss, mean log-probability). No gradient flows
    through the temperature or the mean.

    L_pi = mean[ alpha log pi - min_i Q_i ]
    """
    values = ops.Unstack()(q)
    value = values[0]
    for other in values[1:]:
        value = smaller(value, other)
    loss = (ops.stop_gradient(alpha) * log_prob - value).mean()
    return loss, ops.stop_gradient(log_prob).mean()


def mean_policy_loss(q, log_prob, alpha):
    """Loss of the actor with the mean of the critics (Chen et al., 2021, https://arxiv.org/abs/2101.05982,
    algorithm 1); q and `log_prob` belong to its action. Returns (loss, mean log-probability). No gradient flows
    through the temperature or the mean.

    L_pi = mean[ alpha log pi - 1/N sum_i Q_i ]
    """
    loss = (ops.stop_gradient(alpha) * log_prob - ops.ReduceMean()(q, 0)).mean()
    return loss, ops.stop_gradient(log_prob).mean()


class CriticObjectives(NamedTuple):
    """The functions of this module with these names, each as one kernel if kernels are usable."""

    soft_target: Callable[..., Any]
    value_target: Callable[..., Any]
    critic_loss: Callable[..., Any]
    soft_policy_loss: Callable[..., Any]


def critic_objectives() -> CriticObjectives:
    if not usable():
        return CriticObjectives(soft_target, value_target, critic_loss, soft_policy_loss)
    return CriticObjectives(
        _fused_target("soft_target"), _fused_target("value_target"), _fused_critic_loss(), _fused_policy_loss()
    )


@functools.cache
def _fused_target(name: str) -> Any:
    return kernel(name, lambda reward, *others: reward)


@functools.cache
def _fused_critic_loss() -> Any:
    slope = kernel("critic_loss_gradient", lambda q, target, dloss: q)

    def gradient(q, target, out, dout):
        return slope(q, target, dout[0]), ops.ZerosLike()(target)

    return kernel("critic_loss", lambda q, target: ((), ()), 2, gradient)


@functools.cache
def _fused_policy_loss() -> Any:
    slope = kernel("soft_policy_loss_gradient", lambda q, log_prob, alpha, dloss: (q, log_prob), 2)

    def gradient(q, log_prob, alpha, out, dout):
        dq, dlog_prob = slope(q, log_prob, alpha, dout[0])
        return dq, dlog_prob, ops.ZerosLike()(alpha)

    return kernel("soft_policy_loss", lambda q, log_prob, alpha: ((), ()), 2, gradient)


def log_sum_exp(x):
    """log sum_j exp(x_j) along the last axis, in a form that does not overflow: (B, A) -> (B,)."""
    highest = ops.stop_gradient(primitives.largest(x))
    return ops.Log()(ops.ReduceSum()(ops.Exp()(x - ops.ExpandDims()(highest, -1)), -1)) + highest


def log_integral(q, log_density, count):
    """An estimate of the logarithm of the integral of exp Q(s, a) over a, from actions drawn with known densities:

        log 1/M sum_j exp(Q(s, a_j) - log p_j(a_j))

    Args:
      q: float32 (M, B), the values of M actions.
      log_density: float32 (M, B), log p_j(a_j) of these actions; no gradient flows into it.
      count: M, a Python number.
    Returns:
      float32 (B,).
    """
    weighed = ops.Transpose()(q - ops.stop_gradient(log_density), (1, 0))
    return log_sum_exp(weighed) - math.log(count)


def vtrace(ratio, td_error, decay, rho_bar, c_bar):
    """V-trace (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561, eq. 1 as the recursion of remark 1).

        v_t = V(s_t) + rho_t td_t + decay_t c_t (v_{t+1} - V(s_{t+1}))
        A_t = rho_t (td_t + decay_t (v_{t+1} - V(s_{t+1})))
        rho_t = min(rho_bar, ratio_t),   c_t = min(c_bar, ratio_t)

    `A_t` is the factor of the policy gradient (section 4.2), ``rho_t (r_t + gamma v_{t+1} - V(s_t))`` if lambda = 1.
    With ratios of 1, `v_t` and `A_t` equal the returns and advantages of generalized advantage estimation.

    Args:
      ratio: float32 (T, N), pi(a_t|s_t) / mu(a_t|s_t) of the learned policy pi and the acting policy mu.
      td_error: float32 (T, N), td_t = r_t + gamma * (1 - terminated_t) * V(s'_t) - V(s_t), s'_t the true successor.
      decay: float32 (T, N), gamma * lambda, and 0 where row t + 1 does not continue the trajectory.

    Returns:
      (v_t - V(s_t), A_t), each float32 (T, N). Gradients flow through the arguments: stop them beforehand.
    """
    rho = ops.clamp(ratio, max=rho_bar)
    correction = accumulated(rho * td_error, decay * ops.clamp(ratio, max=c_bar))
    return correction, rho * (td_error + decay * step_after(correction))
