"""QTRAN: agents' values whose sum is transformed from any joint value, so that both have the same best actions.

Son et al., 2019, https://arxiv.org/abs/1905.05408, section 3 (theorems 1 and 2, equations 3 to 8; QTRAN-base,
or QTRAN-alt with `counterfactual`); double Q-learning: van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461.

    Q_m(o, a) by a GRU, weights are shared;   Q(s, u) = MLP([s, f_1(u_1), ..., f_M(u_M)]),   V(s) = MLP(s)
    u*_m = argmax_a Q_m(o_t, a),   y_t = r_t + gamma (1 - terminated) Q'(s_{t+1}, u*_{t+1})
    D(u) = sum_m Q_m(o_t, u_m) - Q(s_t, u) + V(s_t)
    L_td   = mean_{b,t} (Q(s_t, u_t) - y_t)^2
    L_opt  = mean_{b,t} D(u*_t)^2
    L_nopt = mean_{b,t} min(D(u_t), 0)^2, or mean_{b,t,m} (min_a D(u_t with a for u_m))^2
    L = L_td + lambda_opt L_opt + lambda_nopt L_nopt

Q is a constant in L_opt and L_nopt, f_m are networks of their own, Q' is a target network. An absent agent has the
value 0, and so has its part of L_nopt.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting.numpy_layers import ILLEGAL
from minding.policies.families.team import JointQLearning, TeamValuePolicy, mean_of_steps
from minding.policies.networks.team_networks import JointValue, TeamStateValue

FEATURES = 16
"""Numbers that tell the joint value of an agent's action. With one, as in WQMIX, it learns more slowly."""


class Transformation(nn.Cell):
    """The value of joint actions, and the value of the state by which it differs from the sum of the agents' values."""

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.joint = JointValue(spec, model, rng, FEATURES)
        self.state_value = TeamStateValue(spec, model, rng)


class QTRANCell(JointQLearning):
    """Root cell: see `JointQLearning`."""

    metrics = ("loss", "joint_loss", "best_loss", "other_loss", "q_value", "grad_norm")

    def __init__(self, nets, mixers, learn, places) -> None:
        super().__init__(nets, mixers, learn, places)
        self.best_weight, self.other_weight = float(learn["best_weight"]), float(learn["other_weight"])
        self.counterfactual = bool(learn["counterfactual"])
        self.is_own = ms.Tensor(np.eye(self.agents, dtype=np.bool_).reshape(1, self.agents, 1, self.agents, 1))

    def loss(self, batch):
        each, filled = self.joint_values(batch), batch["filled"]
        more = self.mixer.state_value(batch["state"])
        best = ops.ReduceSum()(each["best"], -1) - each["joint_best"] + more
        if self.counterfactual:
            lowest = batch["there"] * (self.lowest(each, batch) + ops.ExpandDims()(more, -1))
            other = ops.ReduceMean()(ops.Square()(lowest), -1)
        else:
            done = ops.ReduceSum()(each["done"], -1) - ops.stop_gradient(each["joint"]) + more
            other = ops.Square()(ops.Minimum()(done, 0.0))
        joint_loss = mean_of_steps(ops.Square()(each["joint"] - each["target"]), filled)
        best_loss = mean_of_steps(ops.Square()(best), filled)
        other_loss = mean_of_steps(other, filled)
        loss = joint_loss + self.best_weight * best_loss + self.other_weight * other_loss
        return loss, {
            "loss": loss,
            "joint_loss": joint_loss,
            "best_loss": best_loss,
            "other_loss": other_loss,
            "q_value": mean_of_steps(each["joint"], filled),
        }

    def lowest(self, each, batch):
        """The lowest D - V over the legal actions of each agent, if all others act as they did: float32 (T B, M)."""
        q, there = each["values"], batch["there"]
        rows, agents, _ = q.shape
        others = ops.ExpandDims()(ops.ReduceSum()(each["done"], -1), -1) - each["done"]
        joint = self.joint_of_alternatives(each["features"], batch["action"], there, batch["state"])
        legal = ops.stop_gradient(q)
        ordered = ops.Select()(legal > 0.5 * ILLEGAL, legal - joint, -legal)
        chosen = ops.ExpandDims()(ops.Argmin(-1)(ordered), -1)
        gap = ops.GatherD()(q, 2, chosen) - ops.GatherD()(joint, 2, chosen)
        return ops.Reshape()(gap, (rows, agents)) + others

    def joint_of_alternatives(self, features, action, there, state):
        """The joint values, float32 (T B, M, A), without gradient, if one agent had taken another action than int32 (T
        B M,): from features (T B, M, A, K), `there` (T B, M), 1 for agents that act, and leaves of the state, (T B,
        ...) each."""
        rows, agents, actions, size = features.shape
        flat = ops.Reshape()(features, (-1, actions, size))
        taken = ops.Reshape()(self.features_of_teams(flat, action, there), (rows, 1, 1, agents, size))
        shape = (rows, agents, actions, agents, size)
        own = ops.BroadcastTo(shape)(ops.ExpandDims()(features, 3))
        made = ops.Select()(ops.BroadcastTo(shape)(self.is_own), own, ops.BroadcastTo(shape)(taken))
        repeated: Any = ()
        for x in state:
            wide = ops.BroadcastTo((rows, agents * actions, *x.shape[1:]))(ops.ExpandDims()(x, 1))
            repeated = (*repeated, ops.Reshape()(wide, (-1, *x.shape[1:])))
        joint = self.mixer.joint(ops.Reshape()(made, (-1, agents * size)), repeated)
        return ops.stop_gradient(ops.Reshape()(joint, (rows, agents, actions)))


class QTRAN(TeamValuePolicy):
    """Factorisation of any joint value for Discrete actions."""

    name = "qtran"
    step_class = QTRANCell
    mixer_class = Transformation
