"""QR-DQN: the distribution of the return as N quantiles, learned by quantile regression.

Dabney et al., 2018, https://arxiv.org/abs/1710.10044, algorithm 1; double, dueling and prioritized replay as in DQN.

    y_j = R + gamma^k (1 - terminated) theta_target_j(s', a*)
    a* = argmax_a mean_j theta_j(s', a)                      (double; else of theta_target)
    L = mean[ w sum_i mean_j |tau_i - 1{u_ij < 0}| huber_kappa(u_ij) ],   u_ij = y_j - theta_i(s, a),
    tau_i = (2 i + 1) / (2 N)                                (w: importance weights of prioritized replay, else 1)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.families.q_learning import ActionValuePolicy, DistributionalQLearning
from minding.policies.networks.return_distribution import QuantileMean, ReturnDistribution
from minding.policies.ops.distributional import QuantileLoss, midpoints
from minding.policies.ops.values import one_step
from minding.policies.settings.q_learning import QRDQNSettings


class QRDQNCell(DistributionalQLearning):
    """Root cell: see `QLearning`. The atoms of its networks are quantiles."""

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.levels = ms.Tensor(midpoints(net.mean.count))
        self.quantile_loss = QuantileLoss(learn["kappa"])

    def td_target(self, batch):
        """y, float32 (B, N)."""
        return one_step(batch, self.next_atoms(batch))

    def loss(self, batch):
        target = ops.stop_gradient(self.td_target(batch))
        loss, value, error = self.quantile_loss(self.atoms(batch), self.levels, target)
        return self.averaged(batch, loss, value, error)


class QRDQN(ActionValuePolicy):
    """Quantile regression DQN for Discrete actions."""

    cfg: QRDQNSettings
    name = "qrdqn"
    step_class = QRDQNCell

    def make_network(self, rng: np.random.Generator) -> ReturnDistribution:
        return ReturnDistribution(self.spec, self.cfg.model, QuantileMean(self.cfg.model.n_quantiles), rng)
