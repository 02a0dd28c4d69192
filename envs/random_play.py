"""Random play in the environments of a manager."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data import trees
from minding.engine.data.agents import num_agents
from minding.engine.data.masks import ACTION_MASK, random_legal
from minding.engine.data.observation import observation_leaves
from minding.engine.types import Array, EnvStep
from minding.envs.manager import BatchedEnvManager

_SEED = 12345


class RandomPlay:
    """Steps environments with random actions in the policy's units; an action mask is obeyed.

    Args:
      manager: manager of the environments.
      description: description of the environments, see `describe_env`.
      seed: seed of the actions.

    Attributes:
      seconds: time in seconds that the environments have taken so far.
    """

    def __init__(self, manager: BatchedEnvManager, description: Mapping[str, Any], seed: int = _SEED) -> None:
        self._manager = manager
        self._space = description["action"]
        agents = num_agents(description)
        self._lead = (manager.num_envs,) if agents is None else (manager.num_envs, agents)
        self._masked = any(leaf.is_mask for leaf in observation_leaves(description["observation"]))
        self._rng = np.random.default_rng(seed)
        self.seconds = 0.0

    def step(self) -> EnvStep:
        """Steps all environments once; adds the time that they take to `seconds`."""
        action = self.action()
        start = time.perf_counter()
        step = self._manager.step(action)
        self.seconds += time.perf_counter() - start
        return step

    def action(self) -> Array:
        """Random actions for the current observations."""
        space = self._space
        if space["kind"] == "box":
            return self._rng.uniform(-1, 1, (*self._lead, *space["shape"])).astype(np.float32)
        counts = space.get("nvec", [space.get("n")])
        mask = np.ones((*self._lead, sum(counts)), bool)
        if self._masked:
            mask = trees.named(self._manager.obs)[ACTION_MASK]
        action = random_legal(mask, counts, self._rng)
        return action.reshape(*self._lead, -1) if space["kind"] == "multi_discrete" else action
