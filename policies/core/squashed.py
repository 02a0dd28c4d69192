"""The base of policies with squashed Gaussians and twin critics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minding.engine.data.batch import Field
from minding.policies.acting.actors import Network, SquashedGaussianActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.soft_actor_critic import SoftActorCritic
from minding.policies.learning.target import equalize
from minding.policies.networks.actor_critic import SquashedActor, TwinCritics


class SquashedGaussianPolicy(BasePolicy):
    """Acts with the tanh of a normal distribution and learns from single transitions.

    A subclass defines `make_learner` and `inputs`.
    """

    sequences = False
    root: SoftActorCritic

    def make_learner(self, net: Any, critics: tuple[Any, Any]) -> SoftActorCritic:
        """Returns the root cell of the actor and of the online critics with their targets."""
        raise NotImplementedError

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    @property
    def target_entropy(self) -> float:
        """The configured value, or -(action size)."""
        if self.cfg.learn.target_entropy is None:
            return float(-self.action_size)
        return self.cfg.learn.read("target_entropy", float)

    def make_network(self, rng: np.random.Generator) -> SquashedActor:
        return SquashedActor(self.spec, self.cfg.model, rng)

    def make_root(self, net: Any, rng: np.random.Generator) -> SoftActorCritic:
        critics, targets = (TwinCritics(self.spec, self.cfg.model, rng) for _ in range(2))
        root = self.make_learner(net, (critics, targets))
        equalize(critics, targets)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> SquashedGaussianActor:
        return SquashedGaussianActor(self.name, network, self.spec, rng)

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields
