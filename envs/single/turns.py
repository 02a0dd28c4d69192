"""Turn-based environments, PettingZoo's AEC games, with the parallel interface."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.errors import ConfigError
from minding.engine.types import Array

SCORE = "score"
"""Key of the info of a step: 1 if the policy has won, 0 if it has lost, else 0.5. Where the policy plays all agents, it
is about the first one."""
_OPPONENTS = ("random", "self")


class TurnTaking(ParallelEnv[str, dict[str, Any], int]):  # type: ignore[misc]
    """An AEC environment with discrete actions, in which one agent acts in each step.

    An agent that waits has one legal action, which is ignored; its rewards arrive while it waits. With the opponent
    ``random``, the policy plays one agent, drawn in each episode, and the others, which are absent, play random legal
    actions. An episode that would end before the policy's turn is begun again.
    """

    def __init__(self, env: Any, name: str, opponent: str = "self") -> None:
        if opponent not in _OPPONENTS:
            raise ConfigError(f"{name}: opponent={opponent!r}: expected one of {', '.join(map(repr, _OPPONENTS))}")
        self.env, self._alone = env, opponent != "self"
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self.render_mode = getattr(env, "render_mode", None)
        self.metadata = {"name": name, **getattr(env, "metadata", {}), "shared_info": (SCORE,)}
        self._rng = np.random.default_rng()
        self._act = {agent: env.action_space(agent) for agent in self.possible_agents}
        for agent, space in self._act.items():
            if not isinstance(space, spaces.Discrete):
                raise ConfigError(
                    f"{name}: the actions of {agent!r} are {space}: expected Discrete, because agents that wait for "
                    "their turn have a mask"
                )
        self._space = {agent: self._sight(agent) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._space[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._act[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._seats = self.possible_agents
        self.agents = []
        while not self.agents:
            self.env.reset(seed=seed, options=options)
            if self._alone:
                self._seats = [str(self._rng.choice(self.possible_agents))]
                # For the case that the episode ends before the agent's turn.
                seed = int(self._rng.integers(2**31))
            self._totals = dict.fromkeys(self.possible_agents, 0.0)
            self._pass_on()
        return self._seen(self.agents), self._infos(self.agents)

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        acting, before = self.agents, dict(self._totals)
        self._play(actions[self.env.agent_selection])
        self._pass_on()
        over, late = (
            {agent: bool(flags.get(agent, agent not in self.agents)) for agent in acting}
            for flags in (self.env.terminations, self.env.truncations)
        )
        rewards = {agent: self._totals[agent] - before[agent] for agent in acting}
        return self._seen(acting), rewards, over, {a: late[a] and not over[a] for a in acting}, self._infos(acting)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _sight(self, agent: str) -> spaces.Dict:
        """The space of an agent's observations, with a mask."""
        seen, mask = self.env.observation_space(agent), spaces.MultiBinary(int(self._act[agent].n))
        return spaces.Dict(
            {**(seen.spaces if isinstance(seen, spaces.Dict) else {OBSERVATION: seen}), ACTION_MASK: mask}
        )

    def _pass_on(self) -> None:
        """Plays until an agent of the policy is to act, or none is left."""
        self.agents = self._left()
        while self.agents and (self._ended(agent := self.env.agent_selection) or agent not in self._seats):
            legal = np.flatnonzero(self._mask(agent, self.env.observe(agent)))
            self._play(None if self._ended(agent) else int(self._rng.choice(legal)) + int(self._act[agent].start))
            self.agents = self._left()

    def _left(self) -> list[str]:
        """The policy's agents that have not come to an end."""
        return [agent for agent in self._seats if agent in self.env.agents and not self._ended(agent)]

    def _ended(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _play(self, action: int | None) -> None:
        self.env.step(action)
        if action is not None:
            for agent, reward in self.env.rewards.items():
                self._totals[agent] += float(reward)

    def _mask(self, agent: str, seen: Any) -> Array:
        """The legal actions of an agent whose turn it is, from its observation or its info."""
        for given in (seen, self.env.infos.get(agent, {})):
            if isinstance(given, Mapping) and ACTION_MASK in given:
                return np.asarray(given[ACTION_MASK], np.int8)
        return np.ones(int(self._act[agent].n), np.int8)

    def _seen(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        shown = {}
        for agent in agents:
            seen = self.env.observe(agent)
            entries = dict(seen) if isinstance(seen, Mapping) else {OBSERVATION: seen}
            if self.agents and agent == self.env.agent_selection:
                mask = self._mask(agent, seen)
            else:
                mask = np.eye(1, int(self._act[agent].n), dtype=np.int8)[0]
            shown[agent] = {**entries, ACTION_MASK: mask}
        return shown

    def _infos(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        own = self._seats[0]
        ahead = self._totals[own] - max(total for agent, total in self._totals.items() if agent != own)
        score = 0.5 if self.agents else (1 + np.sign(ahead)) / 2
        return {agent: {**self.env.infos.get(agent, {}), SCORE: score} for agent in agents}


def turns_of(make: Callable[..., Any], env_id: str) -> Callable[..., TurnTaking]:
    """The function that makes a turn-based environment; its argument `opponent` is ``random`` by default."""

    def turns(opponent: str = _OPPONENTS[0], **kwargs: Any) -> TurnTaking:
        return TurnTaking(make(**kwargs), env_id, opponent)

    return turns
