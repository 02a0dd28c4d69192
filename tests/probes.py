"""An environment with known values (`VALUES`, by state, at the discount `GAMMA`) that is learned in seconds.

Where an algorithm does not bootstrap, or bootstraps where it must not, it prefers the wrong action.
"""

from typing import ClassVar

import gymnasium
import numpy as np


class Invest(gymnasium.Env):
    """A reward that comes a step late, behind a time limit that is no end.

    In state 0, choice 0 gives 1.1 and ends; choice 1 leads to state 1, where any choice gives 1 and leads back. That is
    worth 2.2 in all, but less than choice 0 for who looks one step ahead (0), who takes the time limit for an end (0.8)
    and who looks beyond an end (choice 0: 2.9). A continuous action chooses 1 where it is positive.

    Args:
      continuous: whether actions are.
      joined: whether an action is a choice with a number, which does nothing.
      limit: steps of an episode; with 10, choice 1 is worth 2.0 also for who takes the time limit for an end.
    """

    GAMMA = 0.8
    VALUES = np.array([0.8, 1.0]) / (1.0 - 0.8**2)
    """Of the two states, for who always invests."""
    observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self, continuous: bool = False, limit: int = 2, joined: bool = False) -> None:
        number, choice = gymnasium.spaces.Box(-1.0, 1.0, (1,)), gymnasium.spaces.Discrete(2)
        self.action_space = number if continuous else choice
        if joined:
            self.action_space = gymnasium.spaces.Tuple((choice, number))
        self.continuous, self.limit, self.joined = continuous, limit, joined

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.age = 0
        return self.state, {}

    def choice(self, action) -> int:
        if self.joined:
            return int(action[0])
        return int(action[0] > 0.0) if self.continuous else int(action)

    def step(self, action):
        self.age += 1
        if self.state == 0 and self.choice(action) == 0:
            return 0, 1.1, True, False, {}
        self.state = 1 - self.state
        return self.state, 1.0 - self.state, False, self.age == self.limit, {}


class Hunt(gymnasium.Env):
    """A dict of four lamps and a place beside one of them: stand where the lamp is on. At most 8 steps."""

    observation_space = gymnasium.spaces.Dict(
        lamps=gymnasium.spaces.MultiBinary(4), place=gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal, self.place, self.age = int(self.np_random.integers(4)), int(self.np_random.integers(4)), 0
        return self.observe(), {}

    def step(self, action):
        self.place = min(max(self.place + (1 if action == 1 else -1), 0), 3)
        self.age += 1
        return self.observe(), float(self.place == self.goal), self.place == self.goal, self.age >= 8, {}

    def observe(self):
        return {"lamps": np.eye(4, dtype=np.int8)[self.goal], "place": np.array([self.place / 3], np.float32)}


class Team:
    """`Invest` for each of two agents, as a PettingZoo parallel environment: what one does is nothing to the other."""

    metadata: ClassVar = {}
    possible_agents = ("a", "b")

    def __init__(self, continuous: bool = False, limit: int = 2) -> None:
        self.probes = {agent: Invest(continuous, limit) for agent in self.possible_agents}
        self.agents = []

    def observation_space(self, agent):
        return self.probes[agent].observation_space

    def action_space(self, agent):
        return self.probes[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        seeds = np.random.SeedSequence(seed).generate_state(len(self.agents)).tolist()
        return {agent: self.probes[agent].reset(seed=own)[0] for agent, own in zip(self.agents, seeds)}, {}

    def step(self, actions):
        steps = {agent: self.probes[agent].step(action) for agent, action in actions.items()}
        obs, rewards, ends, cuts, infos = ({agent: step[k] for agent, step in steps.items()} for k in range(5))
        self.agents = [agent for agent in actions if not (ends[agent] or cuts[agent])]
        return obs, rewards, ends, cuts, infos

    def state(self):
        return np.array([self.probes[agent].state * (agent in self.agents) for agent in self.possible_agents])

    def close(self):
        pass
