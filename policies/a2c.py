"""A2C: synchronous advantage actor-critic, one gradient step for each short rollout of all environments together.

Mnih et al., 2016, https://arxiv.org/abs/1602.01783, algorithm S3, with one worker that steps all environments:

    L = -mean[ A_t log pi(a_t|s_t) ] + c_v 1/2 mean[ (V(s_t) - R_t)^2 ] - c_e mean[ H ]

A and R are computed for the rollout with the values of the policy that acted. `gae_estimator` gives n-step returns with
``gae_lambda`` 1 and lambda-returns with smaller values; `montecarlo_return_estimator` always gives n-step returns.

With memory (`model.memory`) the network is unrolled over each environment's part of the rollout, as in PPO.
"""

from collections.abc import Mapping
from typing import Any

from minding.engine.data.batch import IndexedBatch
from minding.policies.families.actor_critic import ActorCriticPolicy, ActorCriticStep
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops.advantage_loss import ADVANTAGE_METRICS, AdvantageLoss


class A2CCell(ActorCriticStep):
    """Root cell: network and optimizer."""

    metrics = (*ADVANTAGE_METRICS, "grad_norm")

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn)
        fuse_likelihood(net.head)
        self.objective = AdvantageLoss(learn)

    def loss(self, batch):
        log_prob, entropy, value, _ = self.evaluate_actions(batch)
        results = self.objective(log_prob, entropy, value, batch)
        return results[0], self.named(results)


class A2C(ActorCriticPolicy):
    """Advantage actor-critic for Discrete, MultiDiscrete and Box actions."""

    name = "a2c"
    step_class = A2CCell
    scalar_fields = ("log_prob", "advantage", "return")
    host_fields = ("advantage",)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        return Inputs({"advantage": self.advantage(batch)}, self.constants(progress))
