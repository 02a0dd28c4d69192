"""FQF: IQN at fractions that a layer of its own proposes, where they describe the return best.

Yang et al., 2019, https://arxiv.org/abs/1911.02140, algorithm 1; double, dueling and prioritized replay as in DQN.

    q = softmax(W psi(s) + b),  tau_i = q_1 + ... + q_i,  tau^_i = (tau_{i-1} + tau_i) / 2,  i <= N;  q', tau^' of s'
    Q(s, a) = sum_i q_i Z(s, a; tau^_i)
    y_j = R + gamma^k (1 - terminated) Z_target(s', a*; tau^_j)
    a* = argmax_a sum_i q'_i Z(s', a; tau^'_i)               (double; else of Z_target)
    L = mean[ w sum_i mean_j |tau^_i - 1{u_ij < 0}| huber_kappa(u_ij) / kappa ],   u_ij = y_j - Z(s, a; tau^_i)
    gradient of W and b:  mean[ w sum_{i<N} (2 Z(s, a; tau_i) - Z(s, a; tau^_i) - Z(s, a; tau^_{i+1})) d tau_i ]
                                                             (w: importance weights of prioritized replay, else 1)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.families.q_learning import ActionValuePolicy, QLearning
from minding.policies.learning.optim import Group
from minding.policies.learning.target import equalize
from minding.policies.networks.layers import Cells
from minding.policies.networks.return_distribution import ImplicitQuantiles, ProposedQuantiles
from minding.policies.ops import primitives
from minding.policies.ops.distributional import QuantileLoss
from minding.policies.ops.values import chosen_atoms, one_step


class FQFCell(QLearning):
    """Root cell: see `QLearning`. The target network has no proposal of its own."""

    metrics = ("loss", "q_value", "fraction_entropy", "grad_norm")

    def __init__(
        self, net: ProposedQuantiles, target: ImplicitQuantiles, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        self.kappa = float(learn["kappa"])
        self.quantile_loss = QuantileLoss(self.kappa)
        self.count = len(self.optim.groups["net"].params)

    def followed(self, net: ProposedQuantiles) -> Cells:
        return net.quantile_function

    def optimized(self, net: ProposedQuantiles, learn: Mapping[str, Any]) -> dict[str, Group]:
        fractions = Group.of(
            net.proposal, learn, rate=learn["fraction_learning_rate"], method="rmsprop", betas=(0.9, 0.95), eps=1e-5
        )
        return {**super().optimized(net, learn), "fractions": fractions}

    def td_target(self, batch, middles):
        """y, float32 (B, N), at fractions tau^ (B, N)."""
        next_obs = batch["next_obs"]
        features, seen = self.net.torso(self.net.encoder(next_obs)), self.target.torso(self.target.encoder(next_obs))
        shares, _, places = self.net.proposed(features)
        if self.double:
            values = self.net.values_at(features, shares, places, next_obs)
        else:
            values = self.target.values_at(seen, shares, places, next_obs)
        quantiles = self.target.quantiles_of(seen, middles)
        return one_step(batch, chosen_atoms(quantiles, ops.Argmax(-1)(values)))

    def loss(self, batch):
        features, action = self.net.torso(self.net.encoder(batch["obs"])), batch["action"]
        shares, ends, middles = self.net.proposed(features)
        fixed = ops.stop_gradient(middles)
        quantiles = chosen_atoms(self.net.quantiles_of(features, fixed), action)
        target = ops.stop_gradient(self.td_target(batch, fixed))
        loss, _, _ = self.quantile_loss(quantiles, fixed, target)
        weights = ops.stop_gradient(shares)
        value = ops.ReduceSum()(weights * quantiles, -1)
        error = ops.Abs()(ops.stop_gradient(ops.ReduceSum()(weights * target, -1) - value))
        moved = self.of_fractions(features, ends, quantiles, action)
        loss, metrics = self.averaged(batch, loss / self.kappa + moved, value, error)
        metrics["fraction_entropy"] = primitives.mean(-ops.ReduceSum()(weights * ops.Log()(weights + 1e-8), -1))
        return loss, metrics

    def of_fractions(self, features, ends, quantiles, action):
        """Numbers 0, float32 (B,), with the gradient of the fractions: the 1-Wasserstein distance between the quantile
        function and its steps (Yang et al., 2019, proposition 1), by psi(s) (B, F), the ends tau (B, N), with gradient,
        Z(s, a; tau^) of the chosen actions (B, N), and these, int32 (B,)."""
        inner = ops.Slice()(ends, (0, 0), (ends.shape[0], ends.shape[1] - 1))
        at_ends = chosen_atoms(self.net.quantiles_of(features, ops.stop_gradient(inner)), action)
        left = ops.Slice()(quantiles, (0, 0), inner.shape)
        right = ops.Slice()(quantiles, (0, 1), inner.shape)
        slope = ops.stop_gradient(2.0 * at_ends - left - right)
        return ops.ReduceSum()(slope * (inner - ops.stop_gradient(inner)), -1)

    def move(self, grads, batch, metrics):
        parts = {"net": grads[: self.count], "fractions": grads[self.count :]}
        return self.optim(parts, batch, metrics)["net"]


class FQF(ActionValuePolicy):
    """Fully parameterized quantile function for Discrete actions."""

    name = "fqf"
    step_class = FQFCell
    network_class = ProposedQuantiles

    def make_target(self, net: ProposedQuantiles, rng: np.random.Generator) -> ImplicitQuantiles:
        target = ImplicitQuantiles(self.spec, self.cfg.model, rng)
        equalize(net.quantile_function, target)
        return target
