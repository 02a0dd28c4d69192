"""PQN: Q-learning from the newest rollout, with normalized layers in place of a replay buffer and a target network.

Gallici et al., 2024, https://arxiv.org/abs/2407.04811, algorithm 1 and section 4.

    R_t = r_t + gamma (1 - terminated) [ lambda R_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a) ]
    L = mean[ 1/2 (Q(s_t, a_t) - R_t)^2 ]

The returns come from the values with which the rollout was played, and do not change while it is learned from. They are
those that `gae_estimator` computes for the state value max_a Q(s, a).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.policies.acting.actors import Network, ValuingActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs, NetworkStep
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import chosen_value, half_square


class PQNCell(NetworkStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "q_value", "grad_norm")

    def __init__(self, net: QNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, {"net": Group.of(net, learn, eps=1e-5, max_grad_norm=learn["grad_norm"])})

    def loss(self, batch):
        value = chosen_value(self.net(batch["obs"])[0], batch["action"])
        loss = row_mean(half_square(value - batch["return"]), batch)
        return loss, self.named((loss, row_mean(value, batch)))


class PQN(BasePolicy):
    """Parallelized Q-network for Discrete actions."""

    name = "pqn"
    step_class = PQNCell
    network_class = QNetwork
    record_fields = ValuingActor.record_fields

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field, "return": Field()}

    def make_actor(self, network: Network, rng: np.random.Generator) -> ValuingActor:
        return ValuingActor(self.name, network, self.spec, rng)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs({}, self.constants(progress))
