"""StarCraft's multi-agent interface (SMAC, SMACv2) as PettingZoo's parallel one.

The interface (Samvelyan et al., 2019, https://arxiv.org/abs/1902.04043) is `get_env_info`, `reset`, `step`, `get_obs`,
`get_state` and `get_avail_actions`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from minding.engine.types import Array
from minding.envs.guards.answers import as_flag

SHARED_INFO = ("battle_won", "dead_allies", "dead_enemies")
"""Keys of a step's info that are about the whole battle."""


def agent_names(count: int) -> tuple[str, ...]:
    """The names of the units of a team."""
    return tuple(f"unit_{m}" for m in range(count))


class SmacParallel(ParallelEnv[str, dict[str, Array], int]):  # type: ignore[misc]
    """An environment with SMAC's interface as a parallel environment.

    Each unit observes `observation`, and `action_mask` from `get_avail_actions`. A unit for which doing nothing, action
    0, is legal is dead, and leaves. The team has one reward, of which each unit that acted gets an equal part. The end
    of an episode is a truncation if the info has `episode_limit`. The info of every unit is the info of the step.

    A seed is passed on if the environment's `reset` accepts one. SMAC's own `reset` does not: it is seeded when it is
    made.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        sizes = env.get_env_info()
        self.max_cycles = int(sizes["episode_limit"])
        self.possible_agents = list(agent_names(sizes["n_agents"]))
        self.agents: list[str] = []
        self.render_mode = getattr(env, "render_mode", None)
        own = getattr(env, "metadata", {})
        self.metadata = {"name": type(env).__name__, **own, "one_reward": True, "shared_info": SHARED_INFO}
        self._actions = spaces.Discrete(int(sizes["n_actions"]))
        seen = spaces.Box(-np.inf, np.inf, (int(sizes["obs_shape"]),), np.float32)
        entries = {"observation": seen, "action_mask": spaces.MultiBinary(int(sizes["n_actions"]))}
        self._space = {agent: spaces.Dict(entries) for agent in self.possible_agents}
        self._act = {agent: spaces.Discrete(int(sizes["n_actions"])) for agent in self.possible_agents}
        self.state_space = spaces.Box(-np.inf, np.inf, (int(sizes["state_shape"]),), np.float32)
        self._seeded = "seed" in inspect.signature(env.reset).parameters

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._space[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._act[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Array]], dict[str, dict[str, Any]]]:
        self.env.reset(**({"seed": seed} if self._seeded else {}))
        seen, alive = self._look()
        self.agents = [agent for agent in self.possible_agents if alive[agent]]
        return {agent: seen[agent] for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        acting = self.agents
        reward, over, info = self.env.step([int(actions.get(agent, 0)) for agent in self.possible_agents])
        over = as_flag(over, "terminated")
        seen, alive = self._look()
        cut = bool(over and info.get("episode_limit", False))
        terminated = {agent: bool(over and not cut) or not alive[agent] for agent in acting}
        truncated = {agent: cut and alive[agent] for agent in acting}
        self.agents = [] if over else [agent for agent in acting if alive[agent]]
        shared = {key: info.get(key, False) for key in SHARED_INFO}
        return (
            {agent: seen[agent] for agent in acting},
            dict.fromkeys(acting, float(reward) / len(acting)),
            terminated,
            truncated,
            {agent: {**info, **shared} for agent in acting},
        )

    def state(self) -> Array:
        return np.asarray(self.env.get_state(), np.float32)

    def render(self) -> Any:
        modes = inspect.signature(self.env.render).parameters
        return self.env.render(mode=self.render_mode) if "mode" in modes else self.env.render()

    def close(self) -> None:
        self.env.close()

    def _look(self) -> tuple[dict[str, dict[str, Array]], dict[str, bool]]:
        masks = np.asarray(self.env.get_avail_actions(), np.int8)
        obs = np.asarray(self.env.get_obs(), np.float32)
        seen = {agent: {"observation": obs[m], "action_mask": masks[m]} for m, agent in enumerate(self.possible_agents)}
        return seen, {agent: not masks[m, 0] for m, agent in enumerate(self.possible_agents)}
