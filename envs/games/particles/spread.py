"""simple_spread_v3: N agents have to cover N landmarks without colliding."""

from __future__ import annotations

import dataclasses

import numpy as np

from minding.engine.types import Array
from minding.envs.games.particles.physics import Bodies
from minding.envs.games.particles.scenario import Scenario, Sight

_SIZE = 0.15
_ACCEL = 5.0
_COVERED = 0.1


@dataclasses.dataclass(frozen=True)
class Spread(Scenario):
    """Every agent loses the landmarks' distances to their nearest agents, and 1 for each of its own collisions.

    Attributes:
      N: number of agents, and of landmarks.
      local_ratio: weight of an agent's own collisions; the weight of the distances is ``1 - local_ratio``.
    Raises:
      ValueError: `N` or `local_ratio` is out of its range.
    """

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
