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

from minding.engine.process.runtime import ms
from minding.policies.core.action_values import ActionValuePolicy
from minding.policies.learning.q_learning import DistributionalQLearning
from minding.policies.networks.return_distribution import QuantileMean, ReturnDistribution
from minding.policies.ops.quantiles import QuantileLoss, midpoints


class QRDQNCell(DistributionalQLearning):
    """Root cell of QR-DQN."""

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.levels = ms.Tensor(midpoints(net.mean.count))
        self.quantile_loss = QuantileLoss(learn["kappa"])

    def backup(self, batch):
        return self.returns(batch, self.next_atoms(batch))

    def errors(self, batch):
        return self.quantile_loss(self.chosen(batch), self.levels, batch["target"])


class QRDQN(ActionValuePolicy):
    """Quantile regression DQN for Discrete actions."""

    name = "qrdqn"

    def _network(self, rng: np.random.Generator) -> ReturnDistribution:
        return ReturnDistribution(self.spec, self.cfg.model, QuantileMean(self.cfg.model.n_quantiles), rng)

    def _learner(self, net: ReturnDistribution, target: ReturnDistribution, prioritized: bool) -> QRDQNCell:
        return QRDQNCell(net, target, self.cfg.learn, prioritized)
