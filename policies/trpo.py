"""TRPO: natural policy gradients whose steps are as long as a trust region allows; NPG as a switch.

Schulman et al., 2015, https://arxiv.org/abs/1502.05477, eq. 14 and appendix C; advantages by GAE
(https://arxiv.org/abs/1506.02438):

    maximize over theta   L = mean[ r A ] + c_e mean[ H ],   r = pi(a|s) / pi_old(a|s)
    subject to            mean[ KL(pi_old(.|s) || pi(.|s)) ] <= d
    V:                    1/2 mean[ (V(s) - R)^2 ], by gradient descent

A rollout gives one step of the policy and several of the value function. With ``learn.line_search`` off, the policy
takes the whole step of the quadratic model: the natural policy gradient of Kakade, 2001,
https://papers.nips.cc/paper/2073-a-natural-policy-gradient, with a normalized length.

In an asynchronous run, r is the ratio to the older policy that acted, and the divergence is that from the policy before
the step.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ops
from minding.policies.families.actor_critic import ActorCriticPolicy, ActorCriticStep, actor_and_critic
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs
from minding.policies.learning.trust_region import OF_STEP, TrustRegionStep
from minding.policies.networks.actor_critic import ActorCritic
from minding.policies.ops.policy_gradient import row_mean


class TRPOCell(ActorCriticStep):
    """Root cell: network, the step of the policy, and the optimizer of the value function.

    The encoder of the observation moves with the policy; the value function's gradient does not reach it.
    """

    metrics = ("value_loss", "entropy", "grad_norm", *OF_STEP)

    def __init__(self, net: ActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn, ("entropy_weight",))
        actor, _ = actor_and_critic(net)
        self.improve = TrustRegionStep(
            actor,
            self.surrogate,
            self.divergence,
            limit=learn["max_kl"],
            iterations=learn["cg_iterations"],
            damping=learn["cg_damping"],
            line_search=learn["line_search"],
        )

    def groups(self, net: ActorCritic, whole: Group, learn: Mapping[str, Any]) -> dict[str, Group]:
        return {"net": dataclasses.replace(whole, params=actor_and_critic(net)[1])}

    def surrogate(self, batch, obs):
        """L, a scalar, and the parameters of the distribution."""
        params = self.net(obs)[1:]
        log_prob, entropy = self.net.head.log_prob_entropy(params, batch["action"])
        ratio = ops.Exp()(log_prob - batch["log_prob"])
        gain = row_mean(ratio * batch["advantage"], batch)
        return gain + self.cfg["entropy_weight"] * row_mean(entropy, batch), params

    def divergence(self, batch, old, new):
        """Mean KL(old || new), a scalar."""
        return row_mean(self.net.head.divergence(old, new), batch)

    def loss(self, batch):
        _, entropy, value, _ = self.evaluate_actions(batch)
        value_loss = 0.5 * row_mean(ops.Square()(value - batch["return"]), batch)
        return value_loss, self.named((value_loss, row_mean(entropy, batch)))

    def step(self, batch):
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.move(grads, batch, metrics)
        found = self.improve.once(batch, metrics["grad_norm"])
        for k in range(len(OF_STEP)):
            metrics[OF_STEP[k]] = found[k]
        return metrics


class TRPO(ActorCriticPolicy):
    """Trust region policy optimization for Discrete, MultiDiscrete and Box actions."""

    name = "trpo"
    step_class = TRPOCell
    scalar_fields = ("log_prob", "advantage", "return")
    host_fields = ("advantage",)
    second_order = True

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        steps, count = {"advantage": self.advantage(batch)}, len(batch.index)
        if count > 1:
            steps["first"] = (np.arange(count) == 0).astype(np.float32)
        return Inputs(steps, self.constants(progress), dict.fromkeys(OF_STEP, 1))
