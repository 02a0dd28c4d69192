"""QR-DQN: the distribution of the return as N quantiles, learned by quantile regression.

Dabney et al., 2018, https://arxiv.org/abs/1710.10044, algorithm 1; double, dueling and prioritized replay as in DQN.

    y_j = R + gamma^k (1 - terminated) theta_target_j(s', a*)
    a* = argmax_a mean_j theta_j(s', a)                      (double; else of theta_target)
    L = mean[ w sum_i mean_j |tau_i - 1{u_ij < 0}| huber_kappa(u_ij) ],   u_ij = y_j - theta_i(s, a),
    tau_i = (2 i + 1) / (2 N)                                (w: importance weights of prioritized replay, else 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.families.q_learning import ActionValuePolicy, QLearning
from minding.policies.networks.return_distribution import QuantileMean, ReturnDistribution
from minding.policies.ops.distributional import QuantileLoss, midpoints
from minding.policies.ops.values import chosen_atoms


class QRDQNCell(QLearning):
    """Root cell: see `QLearning`. The atoms of its networks are quantiles."""

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.levels = ms.Tensor(midpoints(net.mean.count))
        self.quantile_loss = QuantileLoss(learn["kappa"])

    def td_target(self, batch):
        """y, float32 (B, N)."""
        atoms = self.target.atoms(batch["next_obs"])
        if self.double:
            values = self.net(batch["next_obs"])[0]
        else:
            values = self.target.values(atoms, batch["next_obs"])
        next_quantiles = chosen_atoms(atoms, ops.Argmax(-1)(values))
        decay = batch["discount"] * (1.0 - batch["terminated"])
        return ops.ExpandDims()(batch["reward"], -1) + ops.ExpandDims()(decay, -1) * next_quantiles

    def loss(self, batch):
        quantiles = chosen_atoms(self.net.atoms(batch["obs"]), batch["action"])
        loss, value, error = self.quantile_loss(quantiles, self.levels, ops.stop_gradient(self.td_target(batch)))
        return self.averaged(batch, loss, value, error)


class QRDQN(ActionValuePolicy):
    """Quantile regression DQN for Discrete actions."""

    name = "qrdqn"

    def make_network(self, rng: np.random.Generator) -> ReturnDistribution:
        return ReturnDistribution(self.spec, self.cfg.model, QuantileMean(self.cfg.model.read("n_quantiles", int)), rng)

    def make_learner(self, net: ReturnDistribution, target: ReturnDistribution, prioritized: bool) -> QRDQNCell:
        return QRDQNCell(net, target, self.cfg.learn, prioritized)
