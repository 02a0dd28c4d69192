"""IQN: the return's quantile function as a network of fractions, learned by quantile regression at random ones.

Dabney et al., 2018, https://arxiv.org/abs/1806.06923, eq. 2 to 4; double, dueling and prioritized replay as in DQN.

    y_j = R + gamma^k (1 - terminated) Z_target(s', a*; tau'_j),   tau_i, tau'_j ~ U(0, 1),  i < N, j < N'
    a* = argmax_a mean_k Z(s', a; (2 k + 1) / (2 K))         (double; else of Z_target)
    L = mean[ w sum_i mean_j |tau_i - 1{u_ij < 0}| huber_kappa(u_ij) / kappa ],   u_ij = y_j - Z(s, a; tau_i)
                                                             (w: importance weights of prioritized replay, else 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.core.action_values import ActionValuePolicy
from minding.policies.learning.q_learning import NEXT_RANDOM, RANDOM, DistributionalQLearning
from minding.policies.networks.implicit_quantiles import ImplicitQuantiles
from minding.policies.ops.quantiles import QuantileLoss
from minding.policies.ops.values import chosen_atoms


class IQNCell(DistributionalQLearning):
    """Root cell of IQN."""

    def __init__(
        self, net: ImplicitQuantiles, target: ImplicitQuantiles, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.kappa = float(learn["kappa"])
        self.quantile_loss = QuantileLoss(self.kappa)

    def backup(self, batch):
        chooser = self.net if self.double else self.target
        action = ops.Argmax(-1)(chooser(batch["next_obs"])[0])
        return self.returns(batch, chosen_atoms(self.target.atoms(self.seen(batch, "next_obs", NEXT_RANDOM)), action))

    def errors(self, batch):
        fractions = batch["obs"][-1]
        loss, value, priority = self.quantile_loss(self.chosen(batch), fractions, batch["target"])
        return loss / self.kappa, value, priority


class IQN(ActionValuePolicy):
    """Implicit quantile network for Discrete actions."""

    name = "iqn"

    def _network(self, rng: np.random.Generator) -> ImplicitQuantiles:
        return ImplicitQuantiles(self.spec, self.cfg.model, rng)

    def _learner(self, net: ImplicitQuantiles, target: ImplicitQuantiles, prioritized: bool) -> IQNCell:
        return IQNCell(net, target, self.cfg.learn, prioritized)

    def _draw(self, batch: IndexedBatch) -> dict[str, Array]:
        counts = {RANDOM: self.cfg.learn.n_fractions, NEXT_RANDOM: self.cfg.learn.n_target_fractions}
        shape = batch.index.shape
        return {name: self.learn_rng.random((*shape, count), np.float32) for name, count in counts.items()}
