"""The physics of mpe2 for N worlds at once: round bodies with inertia, friction and soft contacts."""

import dataclasses

import numpy as np

from minding.engine.types import Array

_DT = 0.1
_DAMPING = 0.25
_CONTACT_FORCE = 1e2
_CONTACT_MARGIN = 1e-3


@dataclasses.dataclass(frozen=True)
class Bodies:
    """The bodies of a world: M agents, which move and have a mass of 1, before the landmarks, which stay."""

    size: tuple[float, ...]
    collides: tuple[bool, ...]
    accel: tuple[float, ...]
    max_speed: tuple[float, ...]

    def contacts(self) -> list[tuple[int, int]]:
        """Pairs (a, b), a < b, in the order of mpe2, that push each other away and of which at least one moves."""
        pairs = [(a, b) for a in range(len(self.accel)) for b in range(a + 1, len(self.size))]
        return [(a, b) for a, b in pairs if self.collides[a] and self.collides[b]]


class Worlds:
    """N worlds of the same bodies.

    Every number is computed as in ``mpe2._mpe_utils.core.World``, in the same order, so that equal states stay equal
    bit by bit.

    Attributes:
      positions: float64 ``(N, E, 2)``, positions of the bodies.
      velocities: float64 ``(N, M, 2)``, velocities of the agents.
    """

    def __init__(self, bodies: Bodies, count: int) -> None:
        self._agents = len(bodies.accel)
        self.positions = np.zeros((count, len(bodies.size), 2))
        self.velocities = np.zeros((count, self._agents, 2))
        self._contacts = bodies.contacts()
        self._first = np.array([a for a, _ in self._contacts], np.intp)
        self._second = np.array([b for _, b in self._contacts], np.intp)
        size = np.array(bodies.size)
        self._reach = size[self._first] + size[self._second]
        self._max_speed = np.array(bodies.max_speed)
        self._limited = bool(np.isfinite(self._max_speed).any())

    def step(self, force: Array) -> None:
        """Moves all agents by one time step, by the forces ``(N, M, 2)`` of their own pushes, to which those of
        contacts are added in place."""
        self._add_contacts(force)
        self.positions[:, : self._agents] += self.velocities * _DT
        velocities = self.velocities * (1 - _DAMPING)
        velocities += force * _DT
        if self._limited:
            speed = _norm(velocities)
            fast = speed > self._max_speed
            if fast.any():
                limit = np.broadcast_to(self._max_speed, speed.shape)[fast]
                velocities[fast] = velocities[fast] / speed[fast, None] * limit[:, None]
        self.velocities = velocities

    def offsets(self) -> Array:
        """Offset from each agent to each body, float64 ``(N, M, E, 2)``."""
        return self.positions[:, None] - self.positions[:, : self._agents, None]

    def _add_contacts(self, force: Array) -> None:
        apart = self.positions.take(self._first, axis=1) - self.positions.take(self._second, axis=1)
        distance = _norm(apart)
        depth = np.logaddexp(0, (self._reach - distance) / _CONTACT_MARGIN) * _CONTACT_MARGIN
        push = _CONTACT_FORCE * apart / distance[..., None] * depth[..., None]
        # Contacts are added one after the other, so that sums of several are rounded as in mpe2.
        for k, (a, b) in enumerate(self._contacts):
            force[:, a] += push[:, k]
            if b < self._agents:
                force[:, b] -= push[:, k]


def distances(offsets: Array) -> Array:
    """Lengths ``(N, M, E)`` of offsets ``(N, M, E, 2)``."""
    return _norm(offsets)


def _norm(vectors: Array) -> Array:
    squares = vectors * vectors
    length: Array = np.sqrt(squares[..., 0] + squares[..., 1])
    return length
