"""MatrixGame: two agents choose once and together, and a table has their payoff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array

_PAYOFF = ((8.0, -12.0, -12.0), (-12.0, 0.0, 0.0), (-12.0, 0.0, 0.0))


class MatrixGame:
    """A game of one step for two agents, in PettingZoo's parallel form.

    By default the game of Son et al., 2019, https://arxiv.org/abs/1905.05408, section 5.1: both earn 8 together with
    action 0, -12 if only one of them takes it, and otherwise 0. No monotonic function of two values fits it: QMIX
    learns to earn 0.

    The observation of each agent and the global state are the constant 1, float32 ``(1,)``.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "matrix_game_v0"}
    possible_agents = ("agent_0", "agent_1")
    max_cycles = 1

    def __init__(self, payoff: Sequence[Sequence[float]] = _PAYOFF) -> None:
        self.payoff = np.asarray(payoff, np.float64)
        if self.payoff.ndim != 2 or len(set(self.payoff.shape)) != 1:
            raise ValueError(f"MatrixGame: payoff must be a square table; got one of shape {self.payoff.shape}")
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(len(self.payoff))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.agents = list(self.possible_agents)
        return self._observe()

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        reward = float(self.payoff[actions["agent_0"], actions["agent_1"]]) / 2.0
        obs, infos = self._observe()
        dicts = [dict.fromkeys(self.agents, value) for value in (reward, True, False)]
        self.agents = []
        return obs, dicts[0], dicts[1], dicts[2], infos

    def state(self) -> Array:
        """The global state, float32 ``(1,)``."""
        return np.ones(1, np.float32)

    def close(self) -> None:
        pass

    def _observe(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {agent: self.state() for agent in self.possible_agents}, {agent: {} for agent in self.possible_agents}
