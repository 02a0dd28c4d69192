"""IQN: the return's quantile function as a network of fractions, learned by quantile regression at random fractions.

Dabney et al., 2018, https://arxiv.org/abs/1806.06923, eq. 2 to 4; double, dueling and prioritized replay as in DQN.

    y_j = R + gamma^k (1 - terminated) Z_target(s', a*; tau'_j),   tau_i, tau'_j ~ U(0, 1),  i < N, j < N'
    a* = argmax_a mean_k Z(s', a; (2 k + 1) / (2 K))         (double; else of Z_target)
    L = mean[ w sum_i mean_j |tau_i - 1{u_ij < 0}| huber_kappa(u_ij) / kappa ],   u_ij = y_j - Z(s, a; tau_i)
                                                             (w: importance weights of prioritized replay, else 1)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.families.q_learning import ActionValuePolicy, QLearning
from minding.policies.networks.return_distribution import ImplicitQuantiles
from minding.policies.ops.distributional import QuantileLoss
from minding.policies.ops.values import chosen_atoms, one_step
from minding.policies.settings.q_learning import IQNSettings

FRACTIONS, NEXT_FRACTIONS = "fractions", "next_fractions"
"""Names of the inputs tau and tau'."""


class IQNCell(QLearning):
    """Root cell: see `QLearning`."""

    def __init__(
        self, net: ImplicitQuantiles, target: ImplicitQuantiles, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.kappa = float(learn["kappa"])
        self.quantile_loss = QuantileLoss(self.kappa)

    def td_target(self, batch):
        """y, float32 (B, N')."""
        chooser = self.net if self.double else self.target
        action = ops.Argmax(-1)(chooser(batch["next_obs"])[0])
        next_quantiles = chosen_atoms(self.target.quantiles(batch["next_obs"], batch[NEXT_FRACTIONS]), action)
        return one_step(batch, next_quantiles)

    def loss(self, batch):
        fractions = batch[FRACTIONS]
        quantiles = chosen_atoms(self.net.quantiles(batch["obs"], fractions), batch["action"])
        loss, value, error = self.quantile_loss(quantiles, fractions, ops.stop_gradient(self.td_target(batch)))
        return self.averaged(batch, loss / self.kappa, value, error)


class IQN(ActionValuePolicy):
    """Implicit quantile network for Discrete actions."""

    cfg: IQNSettings
    name = "iqn"
    step_class = IQNCell
    network_class = ImplicitQuantiles

    def draw(self, batch: IndexedBatch) -> dict[str, Array]:
        learn = self.cfg.learn
        counts = {FRACTIONS: learn.n_fractions, NEXT_FRACTIONS: learn.n_target_fractions}
        shape = batch.index.shape
        return {name: self.learn_rng.random((*shape, count), np.float32) for name, count in counts.items()}
