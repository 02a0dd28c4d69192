"""Environments with known values (`VALUES`, by state, at the discount `GAMMA`) that are learned in seconds.

Where an algorithm does not bootstrap, or bootstraps where it must not, it prefers the wrong action.
"""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np


class _Choice(gymnasium.Env):
    """Two choices; a continuous action chooses 1 where it is positive."""

    observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,)) if continuous else gymnasium.spaces.Discrete(2)
        self.continuous = continuous

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {}

    def choice(self, action) -> int:
        return int(action[0] > 0.0) if self.continuous else int(action)


class Invest(_Choice):
    """A reward that comes a step late, and a random end: each step is the last with probability 0.1.

    In state 0, choice 0 is worth 0.3 at once and choice 1 leads to state 1, where any choice is worth 1 and leads back.
    Choice 1 is better by 2.36 to 1.58; for who looks one step ahead, choice 0 is.
    """

    GAMMA = 0.9
    END = 0.1
    VALUES = np.array([0.81, 1.0]) / (1.0 - 0.81**2)
    """Of the two states, for who always invests: the discount and the chance to go on make 0.81."""

    def step(self, action):
        reward = 1.0
        if self.state == 0:
            self.state = self.choice(action)
            reward = 0.0 if self.state else 0.3
        else:
            self.state = 0
        return self.state, reward, bool(self.np_random.random() < self.END), False, {}


class KeepGoing(_Choice):
    """A time limit after every step that is no end: choice 1 gives 1 for ever, choice 0 gives 1.5 and ends.

    Choice 1 is worth 5 in all, and 1 for who takes the time limit for an end.
    """

    GAMMA = 0.8
    VALUES = np.array([5.0, 5.0])

    def step(self, action):
        going = self.choice(action) == 1
        return 0, 1.0 if going else 1.5, not going, going, {}


class Team:
    """A probe for each of two agents, as a PettingZoo parallel environment: what one does is nothing to the other.

    Args:
      probe: name of the probe.
      continuous: see the probes.
    """

    metadata: ClassVar = {}
    possible_agents = ("a", "b")

    def __init__(self, probe: str, continuous: bool = False) -> None:
        self.probes = {agent: globals()[probe](continuous) for agent in self.possible_agents}
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
