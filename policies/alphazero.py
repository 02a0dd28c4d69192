"""AlphaZero: a policy and value network that learns from tree search in games against itself.

Silver et al., 2018, https://doi.org/10.1126/science.aar6404. The network (p, v) = f(s) learns the search's policy pi
and the outcome z for the player to move in position s; the weight decay is decoupled (AdamW).

    L = mean[ -sum_a pi(a) log p(a|s) ] + c_v mean[ (z - v)^2 ]

Instead of the outcome alone, z may be (1 - w) outcome + w q with the value q of the search; w is `value_share`.
Illegal actions have probability 0 in pi and in p.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field
from minding.engine.process.runtime import ops
from minding.policies.acting.actors import Network, PredictingActor
from minding.policies.acting.sampling import Categorical
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import NetworkStep
from minding.policies.networks.policy_value import PolicyValue
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import row_mean


def cross_entropy(logits, policy):
    """-sum_a pi(a) log p(a), float32 ``(B,)``, of `logits` ``(B, A)``, `ILLEGAL` for illegal actions, and `policy` pi
    ``(B, A)``, 0 for them."""
    shifted = logits - ops.stop_gradient(primitives.largest(logits, keepdims=True))
    total = ops.log(ops.exp(shifted).sum(axis=-1))
    return policy.sum(axis=-1) * total - (policy * shifted).sum(axis=-1)


class AlphaZeroCell(NetworkStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "value_loss", "grad_norm")

    def __init__(self, net: PolicyValue, learn: Mapping[str, Any]) -> None:
        decay = {"method": "adamw", "weight_decay": learn["weight_decay"]}
        super().__init__(net, {"net": Group.of(net, learn, max_grad_norm=learn["grad_norm"], **decay)})
        self.value_weight = float(learn["value_weight"])

    def loss(self, batch):
        logits, value = self.net(batch["obs"])
        policy_loss = row_mean(cross_entropy(logits, batch["policy"]), batch)
        value_loss = row_mean(ops.square(value - batch["outcome"]), batch)
        loss = policy_loss + self.value_weight * value_loss
        return loss, self.named((loss, policy_loss, value_loss))


class AlphaZero(BasePolicy):
    """Policy and value of a board game, for search."""

    name = "alphazero"
    step_class = AlphaZeroCell
    network_class = PolicyValue
    sequences = False

    def make_actor(self, network: Network, rng: np.random.Generator) -> PredictingActor:
        return PredictingActor(self.name, network, self.spec, rng, Categorical())

    @property
    def row_fields(self) -> dict[str, Field]:
        actions = self.spec["action"]["n"]
        return {**self.obs_fields("obs"), "policy": Field((actions,)), "outcome": Field()}
