"""The space of what several agents see: arrays with an agents axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from minding.engine.data.agents import ALIVE, STATE
from minding.engine.data.masks import OBSERVATION


class AgentsSpace(spaces.Dict):
    """Observations of all agents, ``(M, ...)`` each, with `ALIVE` and, if asked for, `STATE`.

    Args:
      names: of the agents, in the order of the axis.
      observation: the entries of one agent's observation.
      action: the action space of one agent.
      state: the space of the global state, None without.
      team_reward: whether there is one reward for all.
    """

    def __init__(
        self,
        names: Sequence[str],
        observation: spaces.Dict,
        action: spaces.Space[Any],
        state: spaces.Space[Any] | None,
        team_reward: bool,
    ) -> None:
        self.names = tuple(names)
        self.one_observation, self.one_action = observation, action
        self.state, self.team_reward = state, team_reward
        entries = {key: batch_space(space, len(names)) for key, space in observation.spaces.items()}
        entries[ALIVE] = spaces.Box(0, 1, (len(names),), np.bool_)
        super().__init__(entries if state is None else {**entries, STATE: state})

    @property
    def reward_shape(self) -> tuple[int, ...]:
        """Of the reward of one step."""
        return () if self.team_reward else (len(self.names),)


def agents_space(space: spaces.Space[Any]) -> AgentsSpace | None:
    """The space of several agents that `space` is or, where declared info has joined it, holds; None for one agent."""
    if isinstance(space, spaces.Dict) and not isinstance(space, AgentsSpace):
        space = space.spaces.get(OBSERVATION, space)
    return space if isinstance(space, AgentsSpace) else None
