"""Games that need a memory: TMaze and RepeatPrevious."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.games.game_vector import Game, GameVector

EAST, NORTH, SOUTH, WEST = range(4)
STANDING = -0.025
"""Reward of a step against a wall."""


class TMazeVector(GameVector):
    """N mazes in one NumPy step.

    Attributes:
      position: int64 ``(N,)``, cell of each walker, from 0 to the junction.
      north: bool ``(N,)``, whether the goal is in the north.
    """

    native_state = ("position", "north", "steps")

    def __init__(self, num_envs: int = 1, length: int = 10, max_episode_steps: int | None = None) -> None:
        if length < 1:
            raise ValueError(f"length={length}: expected at least 1 step from the first cell to the junction")
        super().__init__(num_envs, spaces.Box(0.0, 1.0, (4,), np.float32), spaces.Discrete(4), max_episode_steps)
        self.length = length
        self.position = np.zeros(num_envs, np.int64)
        self.north = np.zeros(num_envs, bool)

    def _begin(self, rows: Array) -> None:
        self.position[rows] = 0
        self.north[rows] = self.np_random.integers(2, size=len(rows)) == 0

    def _move(self, actions: Array) -> tuple[Array, Array]:
        step = np.where(actions == EAST, 1, np.where(actions == WEST, -1, 0))
        turned = (self.position == self.length) & (step == 0)
        moved = np.clip(self.position + step, 0, self.length)
        right = turned & ((actions == NORTH) == self.north)
        reward = np.where(turned, right, np.where(moved == self.position, STANDING, 0.0))
        self.position = moved
        return reward, turned

    def _observe(self) -> Array:
        """The observations, one-hot, float32 ``(N, 4)``: goal in the north, goal in the south, corridor, junction."""
        first, last = self.position == 0, self.position == self.length
        return np.stack([first & self.north, first & ~self.north, ~first & ~last, last], axis=1).astype(np.float32)


class TMaze(Game):
    """A corridor with a junction at its end (Bakker, 2001, https://papers.nips.cc/paper/1953, section 4.1).

    The first cell shows whether the goal is north or south of the junction, which is `length` steps to the east; both
    are equally probable. All cells in between look alike, and the junction looks the same in every episode. The actions
    are to go east (0), north (1), south (2) and west (3). Turning north or south at the junction ends the episode; the
    side of the goal earns 1, the other side 0. A step against a wall costs 0.025. The best return is 1; a policy that
    does not remember the first cell reaches 0.5.

    Observation: float32 ``(4,)``, one-hot: first cell with the goal in the north, or in the south; corridor; junction.
    """

    def __init__(self, length: int = 10) -> None:
        super().__init__(TMazeVector(1, length))


class RepeatPreviousVector(GameVector):
    """N games in one NumPy step.

    Attributes:
      shown: int64 ``(N, delay + 1)``, the last symbols of each game, the newest last.
    """

    native_state = ("shown", "steps")

    def __init__(
        self,
        num_envs: int = 1,
        delay: int = 4,
        symbols: int = 4,
        answers: int = 32,
        max_episode_steps: int | None = None,
    ) -> None:
        for name, value, least, most in (
            ("delay", delay, 1, 10_000), ("symbols", symbols, 2, 1000), ("answers", answers, 1, 1_000_000)
        ):  # fmt: skip
            if not least <= value <= most:
                raise ValueError(f"{name}={value}: expected {least} to {most:,}")
        observation_space = spaces.Box(0.0, 1.0, (symbols,), np.float32)
        super().__init__(num_envs, observation_space, spaces.Discrete(symbols), max_episode_steps)
        self.delay, self.symbols, self.answers = delay, symbols, answers
        self.shown = np.zeros((num_envs, delay + 1), np.int64)

    def _begin(self, rows: Array) -> None:
        self.shown[rows] = self._draw(len(rows))[:, None]

    def _move(self, actions: Array) -> tuple[Array, Array]:
        following = self._draw(self.num_envs)
        right = (actions == self.shown[:, 0]) & (self.steps >= self.delay)
        self.shown = np.concatenate([self.shown[:, 1:], following[:, None]], axis=1)
        return right / self.answers, self.steps + 1 >= self.delay + self.answers

    def _observe(self) -> Array:
        """The newest symbols as one-hot vectors, float32 ``(N, symbols)``."""
        return np.eye(self.symbols, dtype=np.float32)[self.shown[:, -1]]

    def _draw(self, count: int) -> Array:
        return self.np_random.integers(self.symbols, size=count)


class RepeatPrevious(Game):
    """Every step shows a random symbol; the action names the symbol shown `delay` steps before.

    The game follows RepeatPrevious of POPGym (Morad et al., 2023, https://arxiv.org/abs/2303.01859). An episode asks
    for `answers` answers, beginning with the first step that has a symbol to repeat, and each right answer earns
    1 / `answers`. The best return is 1; a policy without memory reaches 1 / `symbols`.

    Observation: float32 ``(symbols,)``, the symbol as a one-hot vector.
    """

    def __init__(self, delay: int = 4, symbols: int = 4, answers: int = 32) -> None:
        super().__init__(RepeatPreviousVector(1, delay, symbols, answers))
