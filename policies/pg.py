"""PG: the policy gradient with full returns (REINFORCE), without a critic.

Williams, 1992, https://doi.org/10.1007/BF00992696; Sutton and Barto, 2018, section 13.3:

    G_t = sum_k gamma^k r_{t+k},   to the end of the episode
    L = -mean[ (G_t - b) log pi(a_t|s_t) ] - c_e mean[ H ]

b is 0 or the mean return of the minibatch; with ``baseline=standardized``, G - b is also divided by the standard
deviation of the returns. `montecarlo_return_estimator` computes G; an episode is used as soon as it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.types import Array
from minding.policies.acting.actors import Network, SamplingActor
from minding.policies.core.base import BasePolicy
from minding.policies.families.actor_critic import moments, standardized
from minding.policies.learning.optim import Group, Optimizer, method_of
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.networks.actor_critic import PolicyNetwork
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.policy_gradient import policy_loss, row_mean


def pg_loss(log_prob, entropy, batch, entropy_weight):
    """The loss of one minibatch.

    Args:
      log_prob: log-probability by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name: `advantage`, the return minus the baseline, and, if some rows do not count, `valid`, each float32
        (B,).
      entropy_weight: weight of the entropy, c_e.

    Returns:
      (loss, metrics by name), scalars.
    """
    actor_loss, entropy = policy_loss(log_prob, batch["advantage"], batch), row_mean(entropy, batch)
    loss = actor_loss - entropy_weight * entropy
    return loss, {"loss": loss, "policy_loss": actor_loss, "entropy": entropy}


class PGCell(GradientStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "entropy", "grad_norm")

    def __init__(self, net: PolicyNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(["obs", "action"])
        self.net = net
        self.optim = Optimizer(net=Group.of(net, learn, **method_of(learn)))
        self.entropy_weight = learn["entropy_weight"]
        fuse_likelihood(net.head)
        self.gradient = self.optim.gradient(self.loss, "net")

    def loss(self, batch):
        log_prob, entropy = self.net.head.log_prob_entropy(self.net(batch["obs"]), batch["action"])
        return pg_loss(log_prob, entropy, batch, self.entropy_weight)

    def construct(self, batch):
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.optim({"net": grads}, batch, metrics)["net"]
        return metrics


class PG(BasePolicy):
    """Policy gradient for Discrete, MultiDiscrete and Box actions."""

    name = "pg"

    def make_network(self, rng: np.random.Generator) -> PolicyNetwork:
        return PolicyNetwork(self.spec, self.cfg.model, rng)

    def make_root(self, net: PolicyNetwork, rng: np.random.Generator) -> PGCell:
        return PGCell(net, self.cfg.learn)

    def make_actor(self, network: Network, rng: np.random.Generator) -> SamplingActor:
        return SamplingActor(self.name, network, self.spec, rng, self.net.head.distribution)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field, "return": Field()}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs({"advantage": self._advantage(batch)}, self.root.optim.rates(progress))

    def _advantage(self, batch: IndexedBatch) -> Array:
        """The returns of a batch minus their baseline, float32 ``(K, B)``."""
        returns: Array = batch.layout.read(batch.tables.host, "return")[batch.index]
        counted = None if batch.valid is None else batch.valid > 0
        if self.cfg.learn.baseline == "standardized":
            return standardized(returns, counted)
        return returns - moments(returns, counted)[0] if self.cfg.learn.baseline == "mean" else returns
