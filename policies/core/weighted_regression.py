"""The base of policies whose actor imitates recorded actions, weighting better actions more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.types import Array
from minding.policies.acting.actors import Network, SamplingActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.target import equalize
from minding.policies.learning.update import Inputs
from minding.policies.learning.weighted_regression import WeightedRegression
from minding.policies.networks.actor_critic import PolicyNetwork, TwinCritics


class WeightedRegressionPolicy(BasePolicy):
    """Acts with a normal distribution and learns from single transitions.

    A subclass defines `make_learner`.
    """

    sequences = False
    root: WeightedRegression

    def make_learner(self, net: Any, critics: tuple[Any, Any], rng: np.random.Generator) -> WeightedRegression:
        """Returns the root cell of the actor and of the online critics with their targets."""
        raise NotImplementedError

    def noise(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Standard normal numbers for the gradient steps, by name, ``(K, B, A)`` each; none by default.

        Args:
          shape: the shape (K, B, A).
        """
        return {}

    def make_network(self, rng: np.random.Generator) -> PolicyNetwork:
        return PolicyNetwork(self.spec, self.cfg.model, rng)

    def make_root(self, net: Any, rng: np.random.Generator) -> WeightedRegression:
        critics, targets = (TwinCritics(self.spec, self.cfg.model, rng) for _ in range(2))
        root = self.make_learner(net, (critics, targets), rng)
        equalize(critics, targets)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> SamplingActor:
        return SamplingActor(self.name, network, self.spec, rng, self.net.head.distribution)

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        noise = self.noise((*batch.index.shape, math.prod(self.spec["action"]["shape"])))
        return Inputs(noise, {**self.root.optim.rates(progress), "tau": float(self.cfg.learn.tau)})
