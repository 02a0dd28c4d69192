"""BC: behavioral cloning, a policy from recorded actions by supervised learning.

Pomerleau, 1991, https://doi.org/10.1162/neco.1991.3.1.88: the policy learns to take the recorded action in each
recorded state. It uses only the observations s and actions a of the data, and no rewards.

    L = -mean[ log pi(a|s) ]               discrete actions (the cross-entropy); Box with `log_likelihood`
    L = mean[ sum_i (mu_i(s) - a_i)^2 ]    Box with `squared_error`
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field
from minding.engine.process.runtime import ops
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import NetworkStep
from minding.policies.networks.actor_critic import PolicyNetwork
from minding.policies.ops.policy_gradient import row_mean


def cloning_loss(log_prob, batch):
    """Negative log-likelihood of the recorded actions, by their log-probability under the policy, float32 ``(B,)``."""
    return -row_mean(log_prob, batch)


def squared_error_loss(mean, action, batch):
    """Squared distance between the policy's actions and the recorded ones, float32 ``(B, A)``."""
    return row_mean(ops.square(mean - action).sum(axis=-1), batch)


class BCCell(NetworkStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "grad_norm")

    def __init__(self, net: PolicyNetwork, learn: Mapping[str, Any], squared: bool) -> None:
        super().__init__(net, {"net": Group.of(net, learn, max_grad_norm=learn["grad_norm"])})
        self.squared = squared

    def loss(self, batch):
        outputs, action = self.net(batch["obs"]), batch["action"]
        if self.squared:
            loss = squared_error_loss(outputs[0], action.reshape(outputs[0].shape), batch)
        else:
            loss = cloning_loss(self.net.head.log_prob_entropy(outputs, action)[0], batch)
        return loss, self.named((loss,))


class BC(BasePolicy):
    """Behavioral cloning for Discrete, MultiDiscrete and Box actions."""

    name = "bc"
    network_class = PolicyNetwork

    def make_root(self, net: PolicyNetwork, rng: np.random.Generator) -> BCCell:
        squared = self.cfg.learn.loss == "squared_error" and self.spec["action"]["kind"] == "box"
        return BCCell(net, self.cfg.learn, squared)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field}
