"""The shared parts of the games of mpe2: settings, and the observation of an agent."""

from __future__ import annotations

import abc
import dataclasses

import numpy as np

from minding.engine.types import Array
from minding.envs.games.particles.physics import Bodies

_ELSEWHERE = ("benchmark_data", "curriculum", "num_agent_neighbors", "num_landmark_neighbors")


@dataclasses.dataclass(frozen=True)
class Sight:
    """The places of the parts of an agent's observation in a list of vectors.

    The list holds the velocities of M agents, their positions, the offsets from each agent to each of E bodies, and a
    zero vector.

    Attributes:
      agents, bodies: number of agents, M, and of bodies, E.
    """

    agents: int
    bodies: int

    @property
    def nothing(self) -> int:
        """The place of the zero vector."""
        return self.agents * (2 + self.bodies)

    def velocity(self, agent: int) -> int:
        return agent

    def position(self, agent: int) -> int:
        return self.agents + agent

    def offset(self, agent: int, body: int) -> int:
        return self.agents * 2 + agent * self.bodies + body

    def vectors(self, velocities: Array, positions: Array, offsets: Array) -> Array:
        """The lists of N worlds, float32 ``(N, M * (2 + E) + 1, 2)``."""
        listed = np.zeros((len(positions), self.nothing + 1, 2), np.float32)
        listed[:, : self.agents] = velocities
        listed[:, self.agents : 2 * self.agents] = positions[:, : self.agents]
        listed[:, 2 * self.agents : -1] = offsets.reshape(len(positions), -1, 2)
        return listed


@dataclasses.dataclass(frozen=True)
class Scenario(abc.ABC):
    """A game with mpe2's keyword arguments.

    Attributes:
      max_cycles: steps after which an episode is truncated.
      continuous_actions: whether an action is five numbers between 0 and 1 instead of one of five choices.
      terminate_on_success: whether an episode ends when its goal is reached.
      render_mode, dynamic_rescaling: options of pictures, which are drawn only of single worlds.
      benchmark_data, curriculum, num_agent_neighbors, num_landmark_neighbors: options of single worlds, which many
        worlds do not support.
    Raises:
      ValueError: an option is set that only single worlds support.
    """

    max_cycles: int = 25
    continuous_actions: bool = False
    terminate_on_success: bool = False
    render_mode: str | None = None
    dynamic_rescaling: bool = True
    benchmark_data: bool = False
    curriculum: bool = False
    num_agent_neighbors: int | None = None
    num_landmark_neighbors: int | None = None

    def __post_init__(self) -> None:
        for name in _ELSEWHERE:
            value = getattr(self, name)
            if value is not False and value is not None:
                raise ValueError(f"{name}={value!r} is for single worlds alone")

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the M agents."""

    @abc.abstractmethod
    def bodies(self) -> Bodies:
        """The bodies of a world: agents and landmarks."""

    @abc.abstractmethod
    def seen(self) -> list[list[int]]:
        """The observation of each agent, as an ordered list of places in `Sight`."""

    @abc.abstractmethod
    def place(self, count: int, rng: np.random.Generator) -> Array:
        """Draws the positions of all bodies at the start of `count` episodes, ``(count, E, 2)``."""

    @abc.abstractmethod
    def reward(self, positions: Array, distance: Array) -> Array:
        """The rewards after a step, float64 ``(N, M)``.

        Args:
          positions: positions of the bodies, ``(N, E, 2)``.
          distance: distance from each agent to each body, ``(N, M, E)``.
        """

    @abc.abstractmethod
    def success(self, distance: Array) -> Array:
        """Whether the goal is reached, bool ``(N,)``."""
