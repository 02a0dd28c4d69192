"""simple_tag_v3: slow adversaries chase faster agents round obstacles."""

from __future__ import annotations

import dataclasses

import numpy as np

from minding.engine.types import Array
from minding.envs.games.particles.physics import Bodies
from minding.envs.games.particles.scenario import Scenario, Sight

_ADVERSARY_SIZE, _AGENT_SIZE = 0.075, 0.05


@dataclasses.dataclass(frozen=True)
class Tag(Scenario):
    """Every adversary earns 10 for each contact of any adversary with a good agent, which loses 10.

    Good agents also lose up to 10 per axis for leaving the square.

    Attributes:
      num_good, num_adversaries, num_obstacles: number of good agents, adversaries and obstacles.
    Raises:
      ValueError: a side has less than one agent, or the number of obstacles is negative.
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
