"""Actors that also predict a policy and a value for search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.errors import MindingError
from minding.engine.process.floats import flush_denormals
from minding.engine.types import Array, ObsLike
from minding.policies.acting.actors import Actor, Network
from minding.policies.acting.numpy_layers import Outputs
from minding.policies.acting.sampling import Categorical


class PredictingActor(Actor):
    """Draws an action from the network's policy; without exploration, takes the likeliest one.

    Network outputs: logits ``(B, A)``, value ``(B,)``.
    """

    def __init__(self, name: str, network: Network, spec: Mapping[str, Any], rng: np.random.Generator) -> None:
        super().__init__(name, network, spec, rng)
        self.distribution = Categorical()

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        return {"action": self.distribution.sample(outputs[:1], self.rng)[0]}

    def decide(self, outputs: Outputs) -> Array:
        return self.distribution.mode(outputs[:1])

    @flush_denormals
    def predict(self, obs: ObsLike) -> dict[str, Array]:
        logits, value = self.outputs(obs)
        return {"logits": logits, "value": value}

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        return self.outputs(obs, memory)[1]


def predict_with(actor: object, obs: ObsLike) -> dict[str, Array]:
    """Predictions of an actor for search, see `engine.types.Predicts`.

    Raises:
      MindingError: the actor predicts no policy and value for search.
    """
    if not isinstance(actor, PredictingActor):
        raise MindingError(
            f"{getattr(actor, 'name', 'the policy')} predicts no policy and value for search: use alphazero"
        )
    return actor.predict(obs)
