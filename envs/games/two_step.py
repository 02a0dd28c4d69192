"""TwoStep: two agents, of whom one chooses a matrix game and both then play it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array

_PAYOFF = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


class TwoStep:
    """The game of Rashid et al., 2018, https://arxiv.org/abs/1803.11485, section 5, in PettingZoo's parallel form.

    The first step earns nothing; the action of the first agent leads to one of two matrix games. In the second step the
    team earns 7 in the first game, whatever the agents do, and in the second game 0, 1 or 8 if none, one or both of
    them choose action 1. Each agent receives half of it. The best return is 8; a method that takes the value of the
    team to be a sum of its agents' values chooses the game that earns 7.

    Both agents observe the state, which is also the global state: float32 ``(3,)``, one-hot for the start and the two
    games.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "two_step_v0"}
    possible_agents = ("agent_0", "agent_1")
    max_cycles = 2

    def __init__(self) -> None:
        self.agents: list[str] = []
        self._place = 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 1.0, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.agents, self._place = list(self.possible_agents), 0
        return self._observe()

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        acting, first, second = self.agents, actions["agent_0"], actions["agent_1"]
        over = self._place > 0
        reward = _PAYOFF[self._place - 1, first, second] / 2.0 if over else 0.0
        if over:
            self.agents = []
        else:
            self._place = 1 + int(first)
        obs, infos = self._observe()
        dicts = [dict.fromkeys(acting, value) for value in (float(reward), over, False)]
        return obs, dicts[0], dicts[1], dicts[2], infos

    def state(self) -> Array:
        """The global state, float32 ``(3,)``."""
        return np.eye(3, dtype=np.float32)[self._place]

    def close(self) -> None:
        pass

    def _observe(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {agent: self.state() for agent in self.possible_agents}, {agent: {} for agent in self.possible_agents}
