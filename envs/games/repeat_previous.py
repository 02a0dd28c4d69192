"""RepeatPrevious: name the symbol that was shown some steps before."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minding.engine.types import Array


class _Decks:
    """The game at N tables.

    Attributes:
      shown: int64 ``(N, delay + 1)``, the last symbols of each, the newest one last.
      steps: int64 ``(N,)``, steps taken in the running episodes.
    """

    def __init__(self, num_envs: int, delay: int, symbols: int, answers: int) -> None:
        for name, value, least in (("delay", delay, 1), ("symbols", symbols, 2), ("answers", answers, 1)):
            if value < least:
                raise ValueError(f"{name}={value}: expected at least {least}")
        self.delay, self.symbols, self.answers = delay, symbols, answers
        self.observation_space = spaces.Box(0.0, 1.0, (symbols,), np.float32)
        self.action_space = spaces.Discrete(symbols)
        self.shown = np.zeros((num_envs, delay + 1), np.int64)
        self.steps = np.zeros(num_envs, np.int64)

    def begin(self, rows: Array, first: Array) -> None:
        """Starts these games with their first symbols."""
        self.shown[rows] = first[:, None]
        self.steps[rows] = 0

    def move(self, action: Array, following: Array) -> tuple[Array, Array]:
        """Takes one step in each and shows the following symbols; returns (reward, whether the episode is over)."""
        right = (action == self.shown[:, 0]) & (self.steps >= self.delay)
        self.steps += 1
        self.shown = np.concatenate([self.shown[:, 1:], following[:, None]], axis=1)
        return right / self.answers, self.steps >= self.delay + self.answers

    def observe(self) -> Array:
        """Float32 ``(N, symbols)``, one-hot."""
        return np.eye(self.symbols, dtype=np.float32)[self.shown[:, -1]]


class RepeatPrevious(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """Every step shows a random symbol; the action names the one of `delay` steps before.

    After RepeatPrevious of POPGym (Morad et al., 2023, https://arxiv.org/abs/2303.01859). Each right answer earns
    1 / `answers`, of which there are as many to be given, from the step on at which there is something to repeat: the
    best return is 1, and what does not remember reaches 1 / `symbols`.

    Observation: float32 ``(symbols,)``, the symbol one-hot.

    Args:
      delay: steps for which each symbol has to be remembered, while others follow.
      symbols: how many there are.
      answers: asked for in an episode.
    """

    def __init__(self, delay: int = 4, symbols: int = 4, answers: int = 32) -> None:
        self._decks = _Decks(1, delay, symbols, answers)
        self.observation_space, self.action_space = self._decks.observation_space, self._decks.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._decks.begin(np.arange(1), self.np_random.integers(self._decks.symbols, size=1))
        return self._decks.observe()[0], {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        following = self.np_random.integers(self._decks.symbols, size=1)
        reward, over = self._decks.move(np.asarray([action]), following)
        return self._decks.observe()[0], float(reward[0]), bool(over[0]), False, {}


class RepeatPreviousVector(VectorEnv[Array, Array, Array]):  # type: ignore[misc]
    """N games in one NumPy step; ended ones are reset by ``reset(options={'reset_mask': ...})``.

    Args:
      num_envs: N.
      delay, symbols, answers: see `RepeatPrevious`.
      max_episode_steps: steps after which an episode is truncated.

    Attributes:
      shown, steps: the whole state, with the random generator.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    native_state = ("shown", "steps")

    def __init__(
        self,
        num_envs: int = 1,
        delay: int = 4,
        symbols: int = 4,
        answers: int = 32,
        max_episode_steps: int | None = None,
    ) -> None:
        self.num_envs = num_envs
        self._decks = _Decks(num_envs, delay, symbols, answers)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps
        self.single_observation_space = self._decks.observation_space
        self.single_action_space = self._decks.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def shown(self) -> Array:
        return self._decks.shown

    @shown.setter
    def shown(self, value: Array) -> None:
        self._decks.shown = value

    @property
    def steps(self) -> Array:
        return self._decks.steps

    @steps.setter
    def steps(self, value: Array) -> None:
        self._decks.steps = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self._decks.begin(rows, self.np_random.integers(self._decks.symbols, size=len(rows)))
        return self._decks.observe(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        following = self.np_random.integers(self._decks.symbols, size=self.num_envs)
        reward, over = self._decks.move(actions, following)
        return self._decks.observe(), reward, over, ~over & (self.steps >= self._limit), {}
