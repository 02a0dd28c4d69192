"""Maximum-entropy actor-critic algorithms: their gradient steps, and policies of squashed Gaussians."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.config.options import setting_at
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.core.base import BasePolicy
from minding.policies.families.critics_first import CriticsFirst
from minding.policies.learning.optim import Group
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import ActionValue, CriticEnsemble, SquashedActor
from minding.policies.ops.distributions import SquashedGaussian
from minding.policies.ops.primitives import after
from minding.policies.ops.values import critic_objectives
from minding.policies.settings.shared import SoftSettings


class SoftActorCritic(CriticsFirst):
    """Root cell: actor, critics and their targets, temperature and optimizer.

    A step computes the gradients of critics, actor and temperature at the same parameters and then updates all of them,
    as Brax does (https://github.com/google/brax, training/agents/sac/train.py); in other implementations, the actor's
    loss uses the updated critics. A subclass defines `td_target`, `loss_of_actor` and `target_entropy`; in the batch,
    the temperature is `alpha`.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "alpha_loss", "alpha", "q_value", "entropy")

    def __init__(
        self, actor: nn.Cell, critics: CriticEnsemble, targets: CriticEnsemble | None, learn: Mapping[str, Any]
    ) -> None:
        super().__init__(actor, critics)
        self.targets: Any = targets
        self.log_alpha = ms.Parameter(ms.Tensor(np.float32(math.log(learn["alpha"]))), name="log_alpha")
        of_actor = {**learn, "learning_rate": learn.get("actor_learning_rate") or learn["learning_rate"]}
        groups = {"actor": self.group(actor, of_actor), "critics": self.group(critics, learn)}
        if learn["auto_alpha"]:
            groups["alpha"] = dataclasses.replace(groups["actor"], params=[self.log_alpha])
        self.optimize(**groups, **self.own_groups(learn))
        if targets is not None:
            self.move_targets = SoftTarget(critics, targets, self.optim.block("critics"))
        objectives = critic_objectives()
        self.soft_target, self.policy_loss = objectives.soft_target, objectives.soft_policy_loss

    # Defined by the algorithm.

    def loss_of_actor(self, batch):
        """The loss, and by name `actor_loss` and `entropy`, the mean entropy in nats."""
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
        """The gradients of `own_groups`, by name."""
        return {}

    # Shared by the algorithms.

    def construct(self, batch):
        batch["alpha"] = ops.exp(self.log_alpha)
        batch = self.prepare(batch)
        # Target
        batch["target"] = self.td_target(batch)
        # Loss
        (_, critics), critic_grads = self.critic_gradient(batch)
        batch["of_critics"] = critics
        (_, actor), actor_grads = self.actor_gradient(batch)
        actor, grads = self.beside_actor(batch, actor)
        metrics = {"alpha": batch["alpha"]}
        for name in self.of_critics:
            metrics[name] = critics[name]
        for name in ("actor_loss", "alpha_loss", "entropy"):
            metrics[name] = actor[name]
        # Update
        grads["actor"], grads["critics"] = actor_grads, critic_grads
        for name, value in self.own_gradients(critics).items():
            grads[name] = value
        norms = self.optim(grads, batch, (metrics, grads))
        moved = self.move_targets(batch["tau"], norms["critics"])
        # A caller that waits for a metric waits for the whole step.
        metrics["entropy"] = after(actor["entropy"], (norms, moved))
        return metrics

    def beside_actor(self, batch, actor):
        excess = actor["entropy"] - self.target_entropy(batch)
        actor["alpha_loss"] = self.log_alpha * excess
        # The gradient of the temperature is d L_alpha / d log(alpha).
        return actor, {"alpha": (excess,)}


class SquashedGaussianStep(SoftActorCritic):
    """`SoftActorCritic` of an actor with the tanh of a normal distribution.

    Args:
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
    """`SquashedGaussianStep` in the order of `CriticsFirst`: targets follow the critics, and actor and temperature are
    updated where this is due."""

    of_actor = ("actor_loss", "alpha_loss", "entropy")

    def construct(self, batch):
        alpha = ops.exp(self.log_alpha)
        batch["alpha"] = alpha
        metrics = self.critics_first(batch)
        metrics["alpha"] = alpha
        return metrics

    def follow_critics(self, batch, critics, norm):
        return norm, self.move_targets(batch["tau"], norm)

    def follow_actor(self, batch, actor, norms):
        return norms


class SquashedGaussianPolicy(BasePolicy):
    """Acts with the tanh of a normal distribution and learns from single transitions.

    A subclass defines `step_class` and `inputs`.
    """

    cfg: SoftSettings
    has_targets = True
    network_class = SquashedActor
    critic_class = ActionValue
    ensemble_class = CriticEnsemble
    sequences = False

    @property
    def n_critics(self) -> int:
        return int(setting_at(self.cfg, "model.n_critics", 2))

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    @property
    def target_entropy(self) -> float:
        """The configured value, or -(action size)."""
        if self.cfg.learn.target_entropy is None:
            return float(-self.action_size)
        return self.cfg.learn.target_entropy

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
