"""What vector environments of several agents share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minding.engine.types import Array
from minding.envs.spaces.agents import AgentsSpace


class AgentsVector(VectorEnv[Any, Array, Any]):  # type: ignore[misc]
    """N environments of several agents in one step; ended ones are reset by ``reset(options={'reset_mask': ...})``.

    Args:
      num_envs: N.
      space: of one environment.

    Attributes:
      native_state: names of the attributes that, with the random generator, are the whole state.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    native_state: ClassVar[tuple[str, ...]] = ()

    def __init__(self, num_envs: int, space: AgentsSpace) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = space, space.one_action
        self.observation_space = batch_space(space, num_envs)
        self.action_space = batch_space(batch_space(space.one_action, len(space.names)), num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        return self._begin(rows), {}

    def _begin(self, rows: Array) -> dict[str, Array]:
        """Begins new episodes in `rows` with draws of `np_random`; what is observed in all environments."""
        raise NotImplementedError

    def _shared(self, reward: Array) -> Array:
        """Rewards ``(N, M)`` of all agents as they are, or their sums where a team has one reward."""
        return reward.sum(axis=1) if self.single_observation_space.team.one_reward else reward
