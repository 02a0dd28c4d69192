"""Maximum-entropy actor-critic algorithms: their gradient steps, and policies of squashed Gaussians."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import ActionValue, CriticEnsemble, SquashedActor
from minding.policies.ops import primitives
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
      critics, targets: the online critics and their targets, of the same shape; without targets None.
      learn: the configuration `policy.learn`. Actor and temperature learn with `actor_learning_rate`, if it is set.

    Attributes:
      of_critics: names of further metrics that `loss_of_critics` returns.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "alpha_loss", "alpha", "q_value", "entropy")
    of_critics: tuple[str, ...] = ()

    def __init__(
        self, actor: nn.Cell, critics: CriticEnsemble, targets: CriticEnsemble | None, learn: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.net, self.critics = actor, critics
        self.targets: Any = targets
        self.log_alpha = ms.Parameter(ms.Tensor(np.float32(math.log(learn["alpha"]))), name="log_alpha")
        of_actor = {**learn, "learning_rate": learn.get("actor_learning_rate") or learn["learning_rate"]}
        groups = {"actor": self.group(actor, of_actor), "critics": self.group(critics, learn)}
        if learn["auto_alpha"]:
            groups["alpha"] = dataclasses.replace(groups["actor"], params=[self.log_alpha])
        self.optim = Optimizer(**groups, **self.own_groups(learn))
        if targets is not None:
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

    def group(self, net: nn.Cell, learn: Mapping[str, Any]) -> Group:
        """The parameters of actor or critics, with the settings of their optimizer."""
        return Group.of(net, learn)

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
        targets: CriticEnsemble | None,
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


class DelayedActorStep(SquashedGaussianStep):
    """`SquashedGaussianStep` whose actor and temperature are updated after the critics, with their new parameters, and
    only where the input `due`, a scalar, is 1."""

    of_actor = ("actor_loss", "alpha_loss", "entropy")
    """Metrics of the steps that update the actor."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.zeros = tuple(ms.Tensor(np.float32(0.0)) for _ in self.of_actor)

    # Defined by the algorithm.

    def follow(self, batch, critics, norm):
        """Whatever follows the step of the critics, such as their targets; returns a result that comes after it.

        Args:
          critics: the named results of `loss_of_critics`.
          norm: a result of the critics' step.
        """
        return self.move_targets(batch["tau"], norm)

    def follow_actor(self, actor, norm):
        """Whatever follows the step of the actor; returns a result that comes after it, by default `norm`.

        Args:
          actor: the named results of `loss_of_actor`.
          norm: a result of the actor's step.
        """
        return norm

    def construct(self, batch):
        alpha = ops.exp(self.log_alpha)
        batch["alpha"] = alpha
        # Critics
        batch["target"] = self.td_target(batch)
        (_, critics), grads = self.critic_gradient(batch)
        norm = self.optim({"critics": grads}, batch, (critics, grads))["critics"]
        done = (norm, self.follow(batch, critics, norm))
        # Actor and temperature
        values = self.zeros
        if after(batch["due"], done) > 0.0:
            values = self.move_actor(batch, done)
        metrics = {"critic_loss": critics["critic_loss"], "q_value": critics["q_value"], "alpha": alpha}
        # A caller that waits for a metric waits for the whole step.
        for k in range(len(self.of_actor)):
            metrics[self.of_actor[k]] = after(primitives.item(values, k), done)
        return metrics

    def move_actor(self, batch, done):
        """Updates actor and temperature; returns the metrics `of_actor` in order, available after these updates.

        Args:
          batch: the batch of the step.
          done: a result of the critics' step, which comes first.
        """
        batch["obs"] = after(batch["obs"], done)
        (_, actor), grads = self.actor_gradient(batch)
        excess = actor["entropy"] - self.target_entropy(batch)
        values = (actor["actor_loss"], self.log_alpha * excess, actor["entropy"])
        norms = self.optim({"actor": grads, "alpha": (excess,)}, batch, (values, grads))
        followed = self.follow_actor(actor, norms["actor"])
        return tuple([after(value, (norms, followed)) for value in values])


class SquashedGaussianPolicy(BasePolicy):
    """Acts with the tanh of a normal distribution and learns from single transitions.

    A subclass defines `step_class` and `inputs`.

    Attributes:
      ensemble_class: class of the critics together.
      has_targets: whether the critics have targets.
    """

    has_targets = True
    network_class = SquashedActor
    critic_class = ActionValue
    ensemble_class = CriticEnsemble
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
        critics, *targets = (
            self.ensemble_class(self.spec, self.cfg.model, rng, self.n_critics, self.critic_class)
            for _ in range(1 + self.has_targets)
        )
        for each in targets:
            equalize(critics, each)
        root: SquashedGaussianStep = self.step_class(
            net, critics, targets[0] if targets else None, self.cfg.learn, self.target_entropy
        )
        return root

    def due(self, count: int) -> Array:
        """Which of the next gradient steps update the actor, float32 (K,): every `policy_delay`-th one of the run."""
        steps = self.learn_steps + 1 + np.arange(count)
        due: Array = (steps % self.cfg.learn.policy_delay == 0).astype(np.float32)
        return due
