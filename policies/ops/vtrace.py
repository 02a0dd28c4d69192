"""V-trace: value targets and advantages from the data of an older policy (compiled)."""

from __future__ import annotations

from minding.engine.process.runtime import ms, ops


def reverse_scan(delta, decay):
    """Solves y_t = delta_t + decay_t * y_{t+1}, y_T = 0, by doubling shifts, in O(log T) kernels.

    Args:
      delta, decay: float32 (T, N).

    Returns:
      y, float32 (T, N).
    """
    steps, envs = delta.shape
    y, c, shift = delta, decay, 1
    while shift < steps:
        # The compiler knows T and unrolls this loop.
        beyond = ops.zeros((shift, envs), ms.float32)
        y = y + c * ops.concat((y[shift:], beyond), 0)
        c = c * ops.concat((c[shift:], beyond), 0)
        shift = 2 * shift
    return y


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
      rho_bar, c_bar: bounds of the ratios: rho_bar determines which policy's value is learned, c_bar how far errors
        propagate.

    Returns:
      (v_t - V(s_t), A_t), each float32 (T, N). Gradients flow through the arguments: stop them beforehand.
    """
    rho = ops.clamp(ratio, max=rho_bar)
    correction = reverse_scan(rho * td_error, decay * ops.clamp(ratio, max=c_bar))
    following = ops.concat((correction[1:], ops.zeros((1, ratio.shape[1]), ms.float32)), 0)
    return correction, rho * (td_error + decay * following)
