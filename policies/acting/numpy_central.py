"""Networks of centralized training in NumPy, see `acting.numpy_layers`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import MLP, ActionMask, Encoder, Head, Linear, Outputs
from minding.policies.acting.numpy_recurrent import Memory


class PopArt:
    """The value ``(B,)`` in units of the returns.

    Args:
      linear: linear layer that outputs normalized values.
      mean, deviation: mean and standard deviation of the returns, ``(1,)``.
    """

    def __init__(self, linear: Linear, mean: Array, deviation: Array) -> None:
        self.linear, self.mean, self.deviation = linear, mean, deviation

    def __call__(self, x: Array) -> Array:
        value: Array = self.linear(x)[:, 0] * self.deviation
        value += self.mean
        return value


class CentralValue:
    """Features of the agent's observation and the leaves of `central_view` -> value ``(B,)``.

    Args:
      state: encoder of the global state.
      agents: number of agents.
      torso, value: hidden layers and value head on the joined features.
    """

    def __init__(self, state: Encoder, agents: int, torso: MLP, value: PopArt) -> None:
        self.state, self.torso, self.value = state, torso, value
        self.agents = np.eye(agents, dtype=np.float32)

    def __call__(self, features: Array, leaves: Sequence[Array]) -> Array:
        agent, alive, *state = leaves
        there = alive.astype(np.float32)[:, None]
        seen = (features * there, self.state(state) * there, self.agents[agent])
        return self.value(self.torso(np.concatenate(seen, axis=-1)))


class CentralActorCritic:
    """Leaves -> (distribution parameters..., value ``(B,)``, new memory rows).

    The leaves are those of the observation, then those of `central_view`, then the memory rows if the network has a
    memory. Without the leaves of `central_view`, no value is computed.

    Args:
      encoder: encoder of the observation.
      memory: memory after the encoder, or None.
      heads: (actor, head, value).
      mask: mask of the logits if the observation has a mask, or None.
      num_leaves: number of leaves of the observation.
    """

    def __init__(
        self,
        encoder: Encoder,
        memory: Memory | None,
        heads: tuple[MLP, Head, CentralValue],
        mask: ActionMask | None,
        num_leaves: int,
    ) -> None:
        self.encoder, self.memory, self.mask, self.num_leaves = encoder, memory, mask, num_leaves
        self.actor, self.head, self.value = heads

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        features, rows = self.encoder(leaves[: self.num_leaves]), None
        central = leaves[self.num_leaves :]
        if self.memory is not None:
            (features, rows), central = self.memory(features, leaves[-1]), central[:-1]
        outputs = self.head(self.actor(features))
        if self.mask is not None:
            outputs = (self.mask(outputs[0], leaves),)
        if central:
            outputs = (*outputs, self.value(features, central))
        return outputs if rows is None else (*outputs, rows)
