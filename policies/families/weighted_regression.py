"""Policies whose actor imitates recorded actions, weighting better actions more, and their gradient steps."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import nn, ops
from minding.engine.types import Array
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import CriticEnsemble, PolicyNetwork
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.networks.layers import Clip
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import critic_objectives, lowest

LOG_STD_RANGE = (-5.0, 2.0)
"""Bounds of the log standard deviation in the likelihood: identical actions would drive it to minus infinity."""


def advantage_weights(advantage, scale, limit):
    """min(exp(scale * A), limit), float32 (B,) for advantages (B,); no gradient flows into them."""
    # Bounded before the exponential, which would overflow.
    return ops.Minimum()(ops.Exp()(ops.Minimum()(scale * ops.stop_gradient(advantage), 80.0)), limit)


class WeightedRegression(GradientStep):
    """Root cell: an actor with a normal distribution, critics and their targets, and optimizer.

        L_Q = mean[ sum_i 1/2 (Q_i - y)^2 ]
        L_pi = -mean[ min(exp(scale A(s, a)), limit) log pi(a|s) ]

    A step computes all gradients at the same parameters and then updates everything. A subclass defines `td_target` and
    `advantage`.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value", "advantage", "weight")
    has_action_values = True

    def __init__(
        self,
        actor: PolicyNetwork,
        critics: CriticEnsemble,
        targets: CriticEnsemble,
        learn: Mapping[str, Any],
        own: Mapping[str, nn.Cell] | None = None,
    ) -> None:
        super().__init__()
        self.net, self.critics, self.targets = actor, critics, targets
        # Before the optimizer: parameters are named after the first cell that holds them.
        for name, net in (own or {}).items():
            setattr(self, name, net)
        nets = {"actor": actor, "critics": critics, **(own or {})}
        self.optim = Optimizer(**{name: Group.of(net, learn) for name, net in nets.items()})
        self.move_targets = SoftTarget(critics, targets, self.optim.block("critics"))
        self.scale, self.limit = float(learn["weight_scale"]), float(learn["weight_limit"])
        objectives = critic_objectives()
        self.value_target, self.critic_loss = objectives.value_target, objectives.critic_loss
        self.limit_log_std = Clip(*LOG_STD_RANGE)
        fuse_likelihood(actor.head)
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    # Defined by the algorithm.

    def td_target(self, batch):
        """y, float32 (B,), from the batch of the step; no gradient flows into it."""
        raise NotImplementedError

    def advantage(self, batch):
        """A(s, a) of the recorded actions, float32 (B,); no gradient flows into it."""
        raise NotImplementedError

    def prepare(self, batch):
        """The batch with additional entries that the losses need; by default unchanged."""
        return batch

    def own_gradients(self, batch):
        """The metrics of further networks by name, and their gradients by name of the group; none by default."""
        return {}, {}

    # Shared by the algorithms.

    def loss_of_critics(self, batch):
        loss, q = self.critic_loss(self.critics(batch["action"], batch["obs"]), batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def loss_of_actor(self, batch):
        mean, log_std = self.net(batch["obs"])
        log_prob = self.net.head.log_prob_entropy((mean, self.limit_log_std(log_std)), batch["action"])[0]
        loss = -primitives.mean(batch["weight"] * log_prob)
        return loss, {"actor_loss": loss}

    def action_value(self, action, obs):
        return lowest(self.critics(action, obs))

    def construct(self, batch):
        # Target and weights
        batch = self.prepare(batch)
        advantage = self.advantage(batch)
        batch["target"] = self.td_target(batch)
        batch["weight"] = advantage_weights(advantage, self.scale, self.limit)
        # Gradients
        (_, metrics), critic_grads = self.critic_gradient(batch)
        (_, actor), actor_grads = self.actor_gradient(batch)
        metrics["actor_loss"] = actor["actor_loss"]
        metrics["advantage"] = primitives.mean(advantage)
        grads = {"actor": actor_grads, "critics": critic_grads}
        own, own_grads = self.own_gradients(batch)
        for name, value in own.items():
            metrics[name] = value
        for name, value in own_grads.items():
            grads[name] = value
        # Update
        norms = self.optim(grads, batch, (metrics, grads))
        moved = self.move_targets(batch["tau"], norms["critics"])
        # A caller that waits for a metric waits for the whole step.
        metrics["weight"] = after(primitives.mean(batch["weight"]), (norms, moved))
        return metrics


class WeightedRegressionPolicy(BasePolicy):
    """Acts with a normal distribution and learns from single transitions. A subclass defines `step_class`."""

    network_class = PolicyNetwork
    sequences = False

    def more(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Further arguments of `step_class`, which draw initial weights from `rng`; none by default."""
        return ()

    def noise(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Standard normal numbers for the gradient steps, by name, of the shape ``(K, B, A)`` each; none by default."""
        return {}

    def make_root(self, net: Any, rng: np.random.Generator) -> WeightedRegression:
        critics, targets = (CriticEnsemble(self.spec, self.cfg.model, rng) for _ in range(2))
        equalize(critics, targets)
        root: WeightedRegression = self.step_class(net, critics, targets, self.cfg.learn, *self.more(rng))
        return root

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        noise = self.noise((*batch.index.shape, math.prod(self.spec["action"]["shape"])))
        return Inputs(noise, self.constants(progress))
