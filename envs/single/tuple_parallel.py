"""Gymnasium environments of several agents, with Tuples of spaces and a list of rewards, as PettingZoo's parallel ones.

Level-Based Foraging and the multi-robot warehouse have this interface (Papoudakis et al., 2021,
https://arxiv.org/abs/2006.07869); their attribute `n_agents` tells them from environments of one agent whose action is
a Tuple.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from pettingzoo import ParallelEnv

from minding.engine.errors import ConfigError
from minding.envs.guards.answers import InterfaceError, as_flag, brief


def has_tuples(env: Any) -> bool:
    """Whether an environment has Tuples of spaces and says of how many agents."""
    kinds = [getattr(env, name, None) for name in ("observation_space", "action_space")]
    return all(isinstance(space, spaces.Tuple) for space in kinds) and hasattr(env.unwrapped, "n_agents")


class TupleParallel(ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """An environment with one entry per agent in its spaces, observations, actions and rewards.

    The agents are ``agent_0``, ``agent_1``, ...; all of them act in every step, and an episode ends for all at once.
    The info of every agent is the info of the step.
    """

    def __init__(self, env: Any, name: str) -> None:
        self.env = env
        count = int(env.unwrapped.n_agents)
        for what in ("observation_space", "action_space"):
            if len(getattr(env, what)) != count:
                raise ConfigError(
                    f"{name}.{what} has {len(getattr(env, what))} spaces: expected one for each of its {count} agents "
                    "(n_agents)"
                )
        self.possible_agents = [f"agent_{m}" for m in range(count)]
        self.agents: list[str] = []
        self.render_mode = getattr(env, "render_mode", None)
        self.metadata = {"name": name, **env.metadata}
        limits = [vars(layer).get(key) for layer in (env, env.unwrapped) for key in ("_max_episode_steps", "max_steps")]
        self.max_cycles = min((limit for limit in limits if limit), default=None)
        self._seen, self._act = (dict(zip(self.possible_agents, s)) for s in (env.observation_space, env.action_space))

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._act[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._by_agent(obs, "observations"), dict.fromkeys(self.agents, info)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        obs, rewards, over, cut, info = self.env.step(tuple(actions[agent] for agent in self.possible_agents))
        over, cut = as_flag(over, "terminated"), as_flag(cut, "truncated")
        if over or cut:
            self.agents = []
        return (
            self._by_agent(obs, "observations"),
            self._by_agent(rewards, "rewards"),
            *(dict.fromkeys(self.possible_agents, value) for value in (over, cut, info)),
        )

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _by_agent(self, given: Any, what: str) -> dict[str, Any]:
        if not hasattr(given, "__len__") or len(given) != len(self.possible_agents):
            raise InterfaceError(f"the {what} are {brief(given)}; expected {len(self.possible_agents)}, one per agent")
        return dict(zip(self.possible_agents, given))
