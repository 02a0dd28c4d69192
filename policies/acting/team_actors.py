"""Actors of several agents: all agents of an environment share one actor and are rows of one batch to it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.agent_axis import ALIVE, IDENTITY, STATE, agents_view, central_view, fold
from minding.engine.errors import ShapeError
from minding.engine.process.floats import flush_denormals
from minding.engine.types import Array, ObsLike, StateDict
from minding.policies.acting.actors import Actor, Network, StochasticActor
from minding.policies.acting.memory import Memory
from minding.policies.acting.numpy_layers import Outputs


class SharedActor:
    """Acts for M agents of N environments: arrays are ``(N, M, ...)`` outside and ``(N * M, ...)`` for the actor.

    Absent agents get an action as well; environments ignore it and learning leaves it out. An actor whose observations
    have the entry `IDENTITY` gets the agent's number, one of `numbers`, in each row.
    """

    def __init__(self, actor: Actor, numbers: Array) -> None:
        self.actor = actor
        self.numbers, self.agents = numbers, len(numbers)
        self._identified = actor.takes(IDENTITY)

    @property
    def record_fields(self) -> Sequence[str]:
        return self.actor.record_fields

    @property
    def network(self) -> Network:
        return self.actor.network

    @property
    def rng(self) -> np.random.Generator:
        return self.actor.rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self.actor.rng = rng

    @property
    def memory(self) -> Memory | None:
        """The memory, one row per agent of each environment."""
        return self.actor.memory

    @property
    def newest_memory(self) -> Array | None:
        """The current memory, ``(N, M, S)``."""
        memory = self.actor.newest_memory
        return None if memory is None else self._unfold(memory)

    def collect(self, obs: ObsLike, *, random: bool = False, **collect_kwargs: Any) -> dict[str, Array]:
        record = self.actor.collect(self.rows(obs, self.actor.sees_state), random=random, **collect_kwargs)
        return {name: self._unfold(values) for name, values in record.items()}

    def act(self, obs: ObsLike, action_mask: Array | None = None) -> Array:
        mask = None if action_mask is None else fold(np.asarray(action_mask))
        return self._unfold(self.actor.act(self.rows(obs), mask))

    def explore_as(self, obs: ObsLike, **collect_kwargs: Any) -> Array:
        return self._unfold(self.actor.explore_as(self.rows(obs, self.actor.sees_state), **collect_kwargs))

    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        rows = self.rows(obs, self.actor.sees_state)
        return self._unfold(self.actor.value(rows, None if memory is None else fold(memory)))

    def take_reward(self, reward: Array) -> None:
        self.actor.take_reward(reward)

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        if env_ids is not None:
            env_ids = (np.asarray(env_ids, np.int64)[:, None] * self.agents + np.arange(self.agents)).ravel()
        self.actor.reset(env_ids)

    def state_dict(self) -> StateDict:
        return self.actor.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state)

    def rows(self, obs: ObsLike, central: bool = False) -> dict[str, Array]:
        """The observations of all agents as rows of one batch, by path; `central` adds the leaves of `central_view`,
        which a centralized value takes."""
        seen = agents_view(obs)
        for path, leaf in seen.items():
            if leaf.ndim < 2 or leaf.shape[1] != self.agents:
                entry = f", {path!r}" if path else ""
                raise ShapeError(
                    f"observation for {self.actor.name}{entry}: expected (N, {self.agents}, ...), the {self.agents} "
                    f"agents of each environment, got {leaf.shape}"
                )
        if central:
            seen |= central_view(obs)
        rows = {path: fold(leaf) for path, leaf in seen.items()}
        if self._identified:
            rows[IDENTITY] = np.resize(self.numbers, len(next(iter(rows.values()))))
        return rows

    def _unfold(self, rows: Array) -> Array:
        return rows.reshape(-1, self.agents, *rows.shape[1:])


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

    def deciding(self, outputs: Outputs) -> Outputs:
        return outputs

    @flush_denormals
    def value(self, obs: ObsLike, memory: Array | None = None) -> Array:
        return self.outputs(obs, memory)[-1 if self.memory is None else -2]

    def _leaves(self, obs: ObsLike) -> list[Array]:
        given = obs_trees.named(obs)
        # Without them, the agent number may be a part of the own observation.
        parts = CENTRAL_PARTS if ALIVE in given else ()
        central = {path: leaf for path, leaf in given.items() if path.partition(".")[0] in parts}
        own = {path: leaf for path, leaf in given.items() if path not in central or self.takes(path)}
        return [*super()._leaves(own), *central.values()]
