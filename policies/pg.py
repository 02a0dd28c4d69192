"""PG: the policy gradient with full returns (REINFORCE), without a critic.

Williams, 1992, https://doi.org/10.1007/BF00992696; Sutton and Barto, 2018, section 13.3:

    G_t = sum_k gamma^k r_{t+k},   to the end of the episode
    L = -mean[ (G_t - b) log pi(a_t|s_t) ] - c_e mean[ H ]

b is 0 or the mean return of the minibatch; with ``baseline=standardized``, G - b is also divided by the standard
deviation of the returns. `montecarlo_return_estimator` computes G; an episode is used as soon as it is over.
"""

from collections.abc import Mapping
from typing import Any

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.types import Array
from minding.policies.core.base import BasePolicy
from minding.policies.families.actor_critic import moments, standardized
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs, NetworkStep
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
    """
    actor_loss, entropy = policy_loss(log_prob, batch["advantage"], batch), row_mean(entropy, batch)
    return actor_loss - entropy_weight * entropy, actor_loss, entropy


class PGCell(NetworkStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "entropy", "grad_norm")

    def __init__(self, net: PolicyNetwork, learn: Mapping[str, Any]) -> None:
        super().__init__(net, {"net": Group.of(net, learn, eps=1e-5, max_grad_norm=learn["grad_norm"])})
        self.entropy_weight = learn["entropy_weight"]
        fuse_likelihood(net.head)

    def loss(self, batch):
        log_prob, entropy = self.net.head.log_prob_entropy(self.net(batch["obs"]), batch["action"])
        results = pg_loss(log_prob, entropy, batch, self.entropy_weight)
        return results[0], self.named(results)


class PG(BasePolicy):
    """Policy gradient for Discrete, MultiDiscrete and Box actions."""

    name = "pg"
    step_class = PGCell
    network_class = PolicyNetwork
    host_fields = ("return",)

    @property
    def row_fields(self) -> dict[str, Field]:
        return {**self.obs_fields("obs"), "action": self.action_field, "return": Field()}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs({"advantage": self._advantage(batch)}, self.constants(progress))

    def _advantage(self, batch: IndexedBatch) -> Array:
        """The returns of a batch minus their baseline, float32 ``(K, B)``."""
        returns, counted = self.read("return", batch), self.counted(batch)
        if self.cfg.learn.baseline == "standardized":
            return standardized(returns, counted)
        return returns - moments(returns, counted)[0] if self.cfg.learn.baseline == "mean" else returns
