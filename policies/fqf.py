"""FQF: IQN whose quantile fractions are proposed for each state, where they describe its returns best.

Yang et al., 2019, https://arxiv.org/abs/1911.02140, algorithm 1; double, dueling and prioritized replay as in DQN.

    q = softmax(P(psi(s))),   tau_i = sum_{k<=i} q_k,   tau^_i = (tau_i + tau_{i-1}) / 2,   i = 1 .. N
    Q(s, a) = sum_i q_i Z(s, a; tau^_i)
    y_j = R + gamma^k (1 - terminated) Z_target(s', a*; tau^'_j),   a* = argmax_a Q(s', a)      (double; else Q_target)
    L = mean[ w sum_i mean_j |tau^_i - 1{u_ij < 0}| huber_kappa(u_ij) / kappa ],   u_ij = y_j - Z(s, a; tau^_i)
    L_P = mean[ sum_{i<N} tau_i (2 Z(s, a; tau_i) - Z(s, a; tau^_i) - Z(s, a; tau^_{i+1})) - c H(q) ]

L_P moves the proposal P alone, and L all else: the factor of tau_i in L_P is the derivative of the Wasserstein distance
between the returns and their N quantiles (proposition 1), a constant. The fractions of s' and of Q_target are those
that the online network proposes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import nn, ops
from minding.policies.families.q_learning import ActionValuePolicy, QLearning, draws_by_priority
from minding.policies.learning.optim import Group
from minding.policies.learning.target import equalize
from minding.policies.networks.return_distribution import ImplicitQuantiles, ProposedQuantiles
from minding.policies.ops import primitives
from minding.policies.ops.distributional import QuantileLoss
from minding.policies.ops.primitives import after
from minding.policies.ops.values import chosen_atoms, one_step

_SMALLEST = 1e-12
"""Number that is added to a share before its logarithm."""


class FQFTarget(nn.Cell):
    """The target of a `ProposedQuantiles`: its quantiles, without a proposal of its own."""

    def __init__(self, quantile: ImplicitQuantiles) -> None:
        super().__init__()
        self.quantile = quantile


class FQFCell(QLearning):
    """Root cell: see `QLearning`."""

    metrics = (*QLearning.metrics, "fraction_loss", "fraction_entropy")

    def __init__(self, net: ProposedQuantiles, target: FQFTarget, learn: Mapping[str, Any], prioritized: bool) -> None:
        super().__init__(net, target, learn, prioritized)
        self.kappa, self.entropy_weight = float(learn["kappa"]), float(learn["fraction_entropy"])
        self.quantile_loss = QuantileLoss(self.kappa)
        self.valued = len(self.optim.groups["net"].params)

    def groups(self, net: Any, learn: Mapping[str, Any]) -> dict[str, Group]:
        settings = {"rate": learn["fraction_learning_rate"], "method": "rmsprop", "betas": (0.9, 0.95), "eps": 1e-5}
        return {**super().groups(net, learn), "fractions": Group.of(net.proposal, learn, **settings)}

    def followed(self, net: Any) -> nn.Cell:
        quantile: nn.Cell = net.quantile
        return quantile

    def td_target(self, batch):
        """y, float32 (B, N)."""
        obs, quantile, target = batch["next_obs"], self.net.quantile, self.target.quantile
        seen = quantile.seen(obs)
        shares, fractions = self.net.proposed(seen)
        middles, of_target = fractions - 0.5 * shares, target.seen(obs)
        if self.double:
            values = quantile.weighted(seen, shares, middles, obs)
        else:
            values = target.weighted(of_target, shares, middles, obs)
        return one_step(batch, chosen_atoms(target.quantiles_of(of_target, middles), ops.Argmax(-1)(values)))

    def loss(self, batch):
        quantile, action, count = self.net.quantile, batch["action"], self.net.sums.shape[0]
        # Quantiles
        seen = quantile.seen(batch["obs"])
        shares, fractions = self.net.proposed(seen)
        fixed = ops.stop_gradient(shares)
        middles = ops.stop_gradient(fractions) - 0.5 * fixed
        atoms = chosen_atoms(quantile.quantiles_of(seen, middles), action)
        loss, _, error = self.quantile_loss(atoms, middles, ops.stop_gradient(self.td_target(batch)))
        value = ops.ReduceSum()(fixed * ops.stop_gradient(atoms), -1)
        loss, metrics = self.averaged(batch, loss / self.kappa, value, error)
        # Fractions
        inner = ops.Slice()(fractions, (0, 0), (fractions.shape[0], count - 1))
        at_inner = chosen_atoms(quantile.quantiles_of(ops.stop_gradient(seen), ops.stop_gradient(inner)), action)
        below, above = ops.Slice()(atoms, (0, 0), inner.shape), ops.Slice()(atoms, (0, 1), inner.shape)
        slope = ops.stop_gradient(2.0 * at_inner - below - above)
        entropy = primitives.mean(-ops.ReduceSum()(shares * ops.Log()(shares + _SMALLEST), -1))
        fraction_loss = primitives.mean(ops.ReduceSum()(inner * slope, -1)) - self.entropy_weight * entropy
        metrics["fraction_loss"], metrics["fraction_entropy"] = fraction_loss, ops.stop_gradient(entropy)
        return loss + fraction_loss, metrics

    def move(self, grads, batch, metrics):
        norms = self.optim({"net": grads[: self.valued], "fractions": grads[self.valued :]}, batch, metrics)
        return after(norms["net"], norms["fractions"])


class FQF(ActionValuePolicy):
    """Fully parameterized quantile function for Discrete actions."""

    name = "fqf"
    step_class = FQFCell
    network_class = ProposedQuantiles

    def make_root(self, net: Any, rng: np.random.Generator) -> FQFCell:
        target = FQFTarget(ImplicitQuantiles(self.spec, self.cfg.model, rng))
        equalize(net.quantile, target)
        return FQFCell(net, target, self.cfg.learn, draws_by_priority(self.cfg.other))
