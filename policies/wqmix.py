"""WQMIX: QMIX whose errors are weighted, so that the best joint action counts more than the actions below it.

Rashid et al., 2020, https://arxiv.org/abs/2006.10800, sections 3 and 4; double Q-learning: van Hasselt et al., 2016,
https://arxiv.org/abs/1509.06461.

    Q_m(o, a) and Q_tot = mix(Q_1, ..., Q_M; s) as in QMIX,   Q(s, u) = MLP([s, Q^c_1(u_1), ..., Q^c_M(u_M)])
    u*_m = argmax_a Q_m(o_t, a),   y_t = r_t + gamma (1 - terminated) Q'(s_{t+1}, u*_{t+1})
    L = mean_{b,t} w_t (Q_tot(s_t, u_t) - y_t)^2 + mean_{b,t} (Q(s_t, u_t) - y_t)^2
    optimistic:  w_t = 1 if Q_tot(s_t, u_t) < y_t, else alpha
    central:     w_t = 1 if u_t = u*_t or y_t > Q(s_t, u*_t), else alpha

Q^c_m are networks of their own, Q' is a target network. An absent agent has the value 0.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.families.team import JointQLearning, TeamValuePolicy, mean_of_steps
from minding.policies.networks.team_networks import JointValue, MonotonicMixer


class WeightedMixer(nn.Cell):
    """The monotonic value of a team, and the value of joint actions that is not restricted."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.joint = JointValue(spec, model, rng)
        self.monotonic = MonotonicMixer(spec, model, rng)


class WQMIXCell(JointQLearning):
    """Root cell: see `JointQLearning`."""

    metrics = ("loss", "joint_loss", "q_value", "weight", "grad_norm")

    def __init__(self, nets, mixers, learn, places) -> None:
        super().__init__(nets, mixers, learn, places)
        self.optimistic, self.alpha = learn["weighting"] == "optimistic", float(learn["error_weight"])

    def loss(self, batch):
        each, filled = self.joint_values(batch), batch["filled"]
        value, target = self.mixer.monotonic(each["done"], batch["state"]), each["target"]
        error = value - target
        if self.optimistic:
            counts = ops.Cast()(error < 0.0, ms.float32)
        else:
            counts = ops.Maximum()(each["is_best"], ops.Cast()(target > each["joint_best"], ms.float32))
        weight = ops.stop_gradient(self.alpha + (1.0 - self.alpha) * counts)
        joint_loss = mean_of_steps(ops.Square()(each["joint"] - target), filled)
        loss = mean_of_steps(weight * ops.Square()(error), filled) + joint_loss
        return loss, {
            "loss": loss,
            "joint_loss": joint_loss,
            "q_value": mean_of_steps(value, filled),
            "weight": mean_of_steps(weight, filled),
        }


class WQMIX(TeamValuePolicy):
    """Weighted monotonic value function factorisation for Discrete actions."""

    name = "wqmix"
    step_class = WQMIXCell
    mixer_class = WeightedMixer
