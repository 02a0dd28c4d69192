"""QTRAN: agents' values whose sum is transformed from any joint value, so that both have the same best actions.

Son et al., 2019, https://arxiv.org/abs/1905.05408, section 3 (QTRAN-base, theorem 1, equations 3 to 6); double
Q-learning: van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461.

    Q_m(o, a) by a GRU, weights are shared;   Q(s, u) = MLP([s, Q^c_1(u_1), ..., Q^c_M(u_M)]),   V(s) = MLP(s)
    u*_m = argmax_a Q_m(o_t, a),   y_t = r_t + gamma (1 - terminated) Q'(s_{t+1}, u*_{t+1})
    L_td   = mean_{b,t} (Q(s_t, u_t) - y_t)^2
    L_opt  = mean_{b,t} (sum_m Q_m(o_t, u*_m) - Q(s_t, u*) + V(s_t))^2
    L_nopt = mean_{b,t} min(sum_m Q_m(o_t, u_m) - Q(s_t, u) + V(s_t), 0)^2
    L = L_td + lambda_opt L_opt + lambda_nopt L_nopt

Q is a constant in L_opt and L_nopt, Q^c_m are networks of their own, Q' is a target network. An absent agent has the
value 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import nn, ops
from minding.policies.families.team import JointQLearning, TeamValuePolicy, mean_of_steps
from minding.policies.networks.team_networks import JointValue, TeamStateValue


class Transformation(nn.Cell):
    """The value of joint actions, and the value of the state by which it differs from the sum of the agents' values."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.joint = JointValue(spec, model, rng)
        self.state_value = TeamStateValue(spec, model, rng)


class QTRANCell(JointQLearning):
    """Root cell: see `JointQLearning`."""

    metrics = ("loss", "joint_loss", "best_loss", "other_loss", "q_value", "grad_norm")

    def __init__(self, nets, mixers, learn, places) -> None:
        super().__init__(nets, mixers, learn, places)
        self.best_weight, self.other_weight = float(learn["best_weight"]), float(learn["other_weight"])

    def loss(self, batch):
        each, filled = self.joint_values(batch), batch["filled"]
        more = self.mixer.state_value(batch["state"])
        best = ops.ReduceSum()(each["best"], -1) - each["joint_best"] + more
        other = ops.ReduceSum()(each["done"], -1) - ops.stop_gradient(each["joint"]) + more
        joint_loss = mean_of_steps(ops.Square()(each["joint"] - each["target"]), filled)
        best_loss = mean_of_steps(ops.Square()(best), filled)
        other_loss = mean_of_steps(ops.Square()(ops.Minimum()(other, 0.0)), filled)
        loss = joint_loss + self.best_weight * best_loss + self.other_weight * other_loss
        return loss, {
            "loss": loss,
            "joint_loss": joint_loss,
            "best_loss": best_loss,
            "other_loss": other_loss,
            "q_value": mean_of_steps(each["joint"], filled),
        }


class QTRAN(TeamValuePolicy):
    """Factorisation of any joint value for Discrete actions."""

    name = "qtran"
    step_class = QTRANCell
    mixer_class = Transformation
