"""What policies with an actor and a state value have in common."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from minding.policies.core.actors import Network, StochasticActor
from minding.policies.core.base import BasePolicy
from minding.policies.networks.actor_critic import ActorCritic


class ActorCriticPolicy(BasePolicy):
    """Draws actions from a distribution and records what learning uses of log-probability and the state's value.

    A subclass defines `_root` and `row_fields`.
    """

    record_fields: ClassVar[tuple[str, ...]] = ("log_prob", "value")
    """Of each step. With `value`, collectors also record those that bootstrap a rollout, for `gae_estimator`."""

    def _network(self, rng: np.random.Generator) -> ActorCritic:
        return ActorCritic(self.spec, self.cfg.model, rng)

    def _actor(self, network: Network, rng: np.random.Generator) -> StochasticActor:
        return StochasticActor(self.name, network, self.spec, rng, self.net.head.distribution, self.record_fields)
