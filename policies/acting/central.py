"""Actors of centralized training: actions depend on the agent's own observation, values on the global state too."""

from __future__ import annotations

from typing import Any

from minding.engine.data import trees
from minding.engine.data.agents import ALIVE, IDENTITY, STATE
from minding.engine.process.floats import flush_denormals
from minding.engine.types import Array, ObsLike
from minding.policies.acting.actors import StochasticActor
from minding.policies.acting.numpy_layers import Outputs

CENTRAL_PARTS = (IDENTITY, ALIVE, STATE)
"""The entries of `central_view`, in its order; the state may be several leaves."""


class CentralActor(StochasticActor):
    """Draws from a distribution, and records the log-probability and the value of the global state for the agent.
    Acting without exploration needs only the agent's own observation.

    Network outputs: the parameters of `distribution`, then the value ``(B,)`` if the observation's leaves are followed
    by the leaves of `central_view`.
    """

    sees_state = True

    def explore(self, outputs: Outputs, mask: Array | None = None, **collect_kwargs: Any) -> dict[str, Array]:
        return super().explore((outputs[-1], *outputs[:-1]), mask, **collect_kwargs)

    def decide(self, outputs: Outputs) -> Array:
        return self.shaped(self.distribution.mode(outputs))

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        return self.outputs(obs, memory)[-1 if self.memory is None else -2]

    def _leaves(self, obs: ObsLike) -> list[Array]:
        given = trees.named(obs)
        central = {path: leaf for path, leaf in given.items() if path.partition(".")[0] in CENTRAL_PARTS}
        own = {path: leaf for path, leaf in given.items() if path not in central}
        return [*super()._leaves(own), *central.values()]
