"""The games of mpe2, simple_spread_v3 and simple_tag_v3: settings, rewards, and the observation of an agent."""

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
    """A game with mpe2's keyword arguments."""

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
        """The rewards after a step, float64 ``(N, M)``, by the positions of the bodies, ``(N, E, 2)``, and the distance
        from each agent to each body, ``(N, M, E)``."""

    @abc.abstractmethod
    def success(self, distance: Array) -> Array:
        """Whether the goal is reached, bool ``(N,)``."""


_SIZE = 0.15
_ACCEL = 5.0
_COVERED = 0.1


@dataclasses.dataclass(frozen=True)
class Spread(Scenario):
    """Every agent loses the landmarks' distances to their nearest agents, and 1 for each of its own collisions."""

    N: int = 3
    local_ratio: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.N <= 1000 or not 0 <= self.local_ratio <= 1:
            raise ValueError(
                f"N={self.N}, local_ratio={self.local_ratio}: expected 1 to 1000 agents, and a ratio from 0 to 1"
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"agent_{m}" for m in range(self.N))

    def bodies(self) -> Bodies:
        agents = self.N
        return Bodies(
            size=(_SIZE,) * agents + (0.05,) * agents,
            collides=(True,) * agents + (False,) * agents,
            accel=(_ACCEL,) * agents,
            max_speed=(np.inf,) * agents,
        )

    def seen(self) -> list[list[int]]:
        sight, agents = Sight(self.N, 2 * self.N), range(self.N)
        # Each observation has two numbers per other agent for messages, which are never sent.
        silence = [sight.nothing] * (self.N - 1)
        return [
            [sight.velocity(m), sight.position(m)]
            + [sight.offset(m, self.N + landmark) for landmark in agents]
            + [sight.offset(m, other) for other in agents if other != m]
            + silence
            for m in agents
        ]

    def place(self, count: int, rng: np.random.Generator) -> Array:
        return rng.uniform(-1, 1, (count, 2 * self.N, 2))

    def reward(self, positions: Array, distance: Array) -> Array:
        nearest = self._nearest(distance)
        shared = -nearest[:, 0]
        for landmark in range(1, self.N):
            shared = shared - nearest[:, landmark]
        # Minus 1, because each agent's distance from itself is 0.
        collisions = (distance[:, :, : self.N] < _SIZE + _SIZE).sum(axis=2) - 1
        reward: Array = (shared * (1 - self.local_ratio))[:, None] - collisions * self.local_ratio
        return reward

    def success(self, distance: Array) -> Array:
        covered: Array = (self._nearest(distance) < _COVERED).all(axis=1)
        return covered

    def _nearest(self, distance: Array) -> Array:
        """Distance of each landmark to the nearest agent, ``(N, L)``."""
        nearest: Array = distance[:, :, self.N :].min(axis=1)
        return nearest


_ADVERSARY_SIZE, _AGENT_SIZE = 0.075, 0.05


@dataclasses.dataclass(frozen=True)
class Tag(Scenario):
    """Every adversary earns 10 for each contact of any adversary with a good agent, which loses 10.

    Good agents also lose up to 10 per axis for leaving the square.
    """

    num_good: int = 1
    num_adversaries: int = 3
    num_obstacles: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = self.num_good, self.num_adversaries, self.num_obstacles
        if min(counts[:2]) < 1 or counts[2] < 0 or max(counts) > 1000:
            raise ValueError(
                f"num_good={self.num_good}, num_adversaries={self.num_adversaries}, "
                f"num_obstacles={self.num_obstacles}: expected 1 to 1000 agents on each side, and 0 to 1000 obstacles"
            )

    @property
    def names(self) -> tuple[str, ...]:
        adversaries = tuple(f"adversary_{m}" for m in range(self.num_adversaries))
        return adversaries + tuple(f"agent_{m}" for m in range(self.num_good))

    def bodies(self) -> Bodies:
        adversaries, good, obstacles = self.num_adversaries, self.num_good, self.num_obstacles
        return Bodies(
            size=(_ADVERSARY_SIZE,) * adversaries + (_AGENT_SIZE,) * good + (0.2,) * obstacles,
            collides=(True,) * (adversaries + good + obstacles),
            accel=(3.0,) * adversaries + (4.0,) * good,
            max_speed=(1.0,) * adversaries + (1.3,) * good,
        )

    def seen(self) -> list[list[int]]:
        agents = self.num_adversaries + self.num_good
        sight = Sight(agents, agents + self.num_obstacles)
        return [
            [sight.velocity(m), sight.position(m)]
            + [sight.offset(m, agents + obstacle) for obstacle in range(self.num_obstacles)]
            + [sight.offset(m, other) for other in range(agents) if other != m]
            + [sight.velocity(good) for good in range(self.num_adversaries, agents) if good != m]
            for m in range(agents)
        ]

    def place(self, count: int, rng: np.random.Generator) -> Array:
        agents = rng.uniform(-1, 1, (count, self.num_adversaries + self.num_good, 2))
        return np.concatenate([agents, rng.uniform(-0.9, 0.9, (count, self.num_obstacles, 2))], axis=1)

    def reward(self, positions: Array, distance: Array) -> Array:
        adversaries, agents = self.num_adversaries, self.num_adversaries + self.num_good
        touched = self._touched(distance)
        reward = np.empty((len(positions), agents))
        reward[:, :adversaries] = 10.0 * touched.sum(axis=(1, 2))[:, None]
        outside = _outside(np.abs(positions[:, adversaries:agents]))
        reward[:, adversaries:] = -10.0 * touched.sum(axis=2) - outside[..., 0] - outside[..., 1]
        return reward

    def success(self, distance: Array) -> Array:
        caught: Array = self._touched(distance).any(axis=2).all(axis=1)
        return caught

    def _touched(self, distance: Array) -> Array:
        """Whether each good agent and each adversary are in contact, bool ``(N, G, A)``."""
        adversaries, agents = self.num_adversaries, self.num_adversaries + self.num_good
        touched: Array = distance[:, adversaries:agents, :adversaries] < _AGENT_SIZE + _ADVERSARY_SIZE
        return touched


def _outside(x: Array) -> Array:
    """The cost of distance `x` from the middle of the square along one axis."""
    # The exponent is bounded, because the cost is capped well before.
    far = np.minimum(np.exp(np.minimum(2 * x - 2, 3)), 10)
    return np.where(x < 0.9, 0, np.where(x < 1, (x - 0.9) * 10, far))
