"""Maximum-entropy actor-critic algorithms: their gradient steps, and policies of squashed Gaussians."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import ActionValue, CriticEnsemble, SquashedActor
from minding.policies.ops.distributions import SquashedGaussian
from minding.policies.ops.primitives import after
from minding.policies.ops.values import critic_objectives


class SoftActorCritic(GradientStep):
    """Root cell: actor, critics and their targets, temperature and optimizer.

    A step computes the gradients of critics, actor and temperature at the same parameters and then updates all of them,
    as Brax does (https://github.com/google/brax, training/agents/sac/train.py); in other implementations, the actor's
    loss uses the updated critics. A subclass defines `td_target`, `loss_of_actor` and `target_entropy`.

    Args:
      actor: the network that acts.
      critics, targets: the online critics and their targets, of the same shape.
      learn: the configuration `policy.learn`. Actor and temperature learn with `actor_learning_rate`, if it is set.

    Attributes:
      of_critics: names of further metrics that `loss_of_critics` returns.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "alpha_loss", "alpha", "q_value", "entropy")
    of_critics: tuple[str, ...] = ()

    def __init__(
        self, actor: nn.Cell, critics: CriticEnsemble, targets: CriticEnsemble, learn: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.net, self.critics, self.targets = actor, critics, targets
        self.log_alpha = ms.Parameter(ms.Tensor(np.float32(math.log(learn["alpha"]))), name="log_alpha")
        of_actor = {**learn, "learning_rate": learn.get("actor_learning_rate") or learn["learning_rate"]}
        groups = {"actor": Group.of(actor, of_actor), "critics": Group.of(critics, learn)}
        if learn["auto_alpha"]:
            groups["alpha"] = dataclasses.replace(groups["actor"], params=[self.log_alpha])
        self.optim = Optimizer(**groups, **self.own_groups(learn))
        self.move_targets = SoftTarget(critics, targets, self.optim.block("critics"))
        self.soft_target, self.value_target, self.critic_loss, self.policy_loss = critic_objectives()
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    # Defined by the algorithm. `batch` is the batch of the step, with the temperature as `alpha`.

    def td_target(self, batch):
        """The `target` in the batch of `loss_of_critics`; no gradient flows into it."""
        raise NotImplementedError

    def loss_of_critics(self, batch):
        """The loss, and by name `critic_loss`, `q_value` and values of the critics that the actor's loss needs."""
        loss, q = self.critic_loss(self.critics(batch["action"], batch["obs"]), batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def loss_of_actor(self, batch):
        """The loss, and by name `actor_loss` and `entropy`, the mean entropy in nats.

        Args:
          batch: the batch, whose additional entry `of_critics` has the named results of `loss_of_critics`.
        """
        raise NotImplementedError

    def target_entropy(self, batch):
        """The entropy in nats at which the temperature aims: a Python number or a scalar tensor."""
        raise NotImplementedError

    def own_groups(self, learn: Mapping[str, Any]) -> dict[str, Group]:
        """Further groups of parameters, by name; none by default."""
        return {}

    def own_gradients(self, critic):
        """The gradients of `own_groups`, by name.

        Args:
          critic: the named results of `loss_of_critics`.
        """
        return {}

    def prepare(self, batch):
        """The batch with additional entries that the losses need; by default unchanged."""
        return batch

    # Shared by the algorithms.

    def construct(self, batch):
        alpha = ops.exp(self.log_alpha)
        batch["alpha"] = alpha
        batch = self.prepare(batch)
        # Target
        batch["target"] = self.td_target(batch)
        # Loss
        (_, critic), critic_grads = self.critic_gradient(batch)
        batch["of_critics"] = critic
        (_, actor), actor_grads = self.actor_gradient(batch)
        excess = actor["entropy"] - self.target_entropy(batch)
        metrics = {
            "critic_loss": critic["critic_loss"],
            "actor_loss": actor["actor_loss"],
            "alpha_loss": self.log_alpha * excess,
            "alpha": alpha,
            "q_value": critic["q_value"],
            "entropy": actor["entropy"],
        }
        for name in self.of_critics:
            metrics[name] = critic[name]
        # Update
        # The gradient of the temperature is d L_alpha / d log(alpha).
        grads = {"actor": actor_grads, "critics": critic_grads, "alpha": (excess,)}
        for name, value in self.own_gradients(critic).items():
            grads[name] = value
        norms = self.optim(grads, batch, (metrics, grads))
        moved = self.move_targets(batch["tau"], norms["critics"])
        # A caller that waits for a metric waits for the whole step.
        metrics["entropy"] = after(actor["entropy"], (norms, moved))
        return metrics


class SquashedGaussianStep(SoftActorCritic):
    """`SoftActorCritic` of an actor with the tanh of a normal distribution.

    Args:
      actor, critics, targets, learn: see `SoftActorCritic`.
      target_entropy: the entropy in nats at which the temperature aims.
    """

    def __init__(
        self,
        actor: SquashedActor,
        critics: CriticEnsemble,
        targets: CriticEnsemble,
        learn: Mapping[str, Any],
        target_entropy: float,
    ) -> None:
        super().__init__(actor, critics, targets, learn)
        self.squashed = SquashedGaussian()
        self.wanted_entropy = target_entropy

    def drawn(self, obs, noise):
        """Actions of the policy, float32 (B, A), and their log-probabilities (B,)."""
        mean, log_std = self.net(obs)
        return self.squashed(mean, log_std, noise)

    def loss_of_actor(self, batch):
        action, log_prob = self.drawn(batch["obs"], batch["noise"])
        loss, log_prob = self.policy_loss(self.critics(action, batch["obs"]), log_prob, batch["alpha"])
        return loss, {"actor_loss": loss, "entropy": -log_prob}

    def target_entropy(self, batch):
        return self.wanted_entropy


class SquashedGaussianPolicy(BasePolicy):
    """Acts with the tanh of a normal distribution and learns from single transitions.

    A subclass defines `step_class` and `inputs`.
    """

    network_class = SquashedActor
    critic_class = ActionValue
    sequences = False

    @property
    def n_critics(self) -> int:
        return self.cfg.model.read("n_critics", int, 2)

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    @property
    def target_entropy(self) -> float:
        """The configured value, or -(action size)."""
        if self.cfg.learn.target_entropy is None:
            return float(-self.action_size)
        return self.cfg.learn.read("target_entropy", float)

    def make_root(self, net: Any, rng: np.random.Generator) -> SquashedGaussianStep:
        critics, targets = (
            CriticEnsemble(self.spec, self.cfg.model, rng, self.n_critics, self.critic_class) for _ in range(2)
        )
        equalize(critics, targets)
        root: SquashedGaussianStep = self.step_class(net, critics, targets, self.cfg.learn, self.target_entropy)
        return root
