"""The space of the observations of several agents: arrays with an agents axis."""

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import OBSERVATION


@dataclasses.dataclass(frozen=True)
class Team:
    """The agents of an environment."""

    names: tuple[str, ...]
    observations: tuple[spaces.Dict, ...]
    actions: tuple[spaces.Space[Any], ...]
    one_reward: bool = False
    shared_info: tuple[str, ...] = ()


class AgentsSpace(spaces.Dict):
    """Observations of all agents, ``(M, ...)`` each, with `ALIVE` and, if asked for, `STATE`."""

    def __init__(
        self, team: Team, observation: spaces.Dict, action: spaces.Space[Any], state: spaces.Space[Any] | None
    ) -> None:
        self.team, self.names = team, team.names
        self.one_observation, self.one_action = observation, action
        self.state = state
        entries = {key: batch_space(space, len(team.names)) for key, space in observation.spaces.items()}
        entries[ALIVE] = spaces.Box(0, 1, (len(team.names),), np.bool_)
        super().__init__(entries if state is None else {**entries, STATE: state})

    @property
    def reward_shape(self) -> tuple[int, ...]:
        """Shape of the reward of one step: ``()`` if all agents have one reward, else ``(M,)``."""
        return () if self.team.one_reward else (len(self.names),)


def agents_space(space: spaces.Space[Any] | None) -> AgentsSpace | None:
    """The space of several agents: `space` or, if declared info has joined it, its observation; None for one agent."""
    if isinstance(space, spaces.Dict) and not isinstance(space, AgentsSpace):
        space = space.spaces.get(OBSERVATION, space)
    return space if isinstance(space, AgentsSpace) else None
