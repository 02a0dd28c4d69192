"""RepeatPrevious: name the symbol of some steps earlier."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.games.vector import Game, GameVector


class RepeatPreviousVector(GameVector):
    """N games in one NumPy step.

    Args:
      num_envs: number of games, N.
      delay, symbols, answers: see `RepeatPrevious`.
      max_episode_steps: steps after which an episode is truncated.

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

    Args:
      delay: steps for which each symbol has to be remembered, while others follow.
      symbols: number of different symbols.
      answers: number of answers in an episode.
    """

    def __init__(self, delay: int = 4, symbols: int = 4, answers: int = 32) -> None:
        super().__init__(RepeatPreviousVector(1, delay, symbols, answers))
