"""Turn-based environments as environments of several agents."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from pettingzoo import AECEnv

import minding
from minding.envs import make_env_manager
from minding.envs.single.turns import turns_of


class Pile(AECEnv):
    """Players take one or two stones in turn (actions 0 and 1) or resign (2); the last stone wins, and the others pay.

    Args:
      mask: where the legal actions are told: in the observation, in the info, or nowhere.
    """

    metadata = {"name": "pile_v0"}  # noqa: RUF012

    def __init__(self, stones=3, players=2, mask="observation", continuous=False):
        super().__init__()
        self.possible_agents = [f"player_{m}" for m in range(players)]
        self._stones, self._mask, self._continuous = stones, mask, continuous

    def observation_space(self, agent):
        seen = Box(0, 9, (2,))
        return Dict(observation=seen, action_mask=MultiBinary(3)) if self._mask == "observation" else seen

    def action_space(self, agent):
        return Box(-1, 1, (1,)) if self._continuous else Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), self._stones
        self.rewards, self._cumulative_rewards = (dict.fromkeys(self.agents, 0) for _ in range(2))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.agent_selection = self.agents[0]
        self._tell()

    def observe(self, agent):
        seen = np.array([self.possible_agents.index(agent), self.left], np.float32)
        return {"observation": seen, "action_mask": self._legal()} if self._mask == "observation" else seen

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert self._legal()[action]
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.rewards = dict.fromkeys(self.agents, 0)
        others = [each for each in self.agents if each != agent and not self.terminations[each]]
        if action == 2:
            self.terminations[agent], self.rewards[agent] = True, -1
            if len(others) == 1:
                self.rewards[others[0]], self.terminations[others[0]] = 1, True
        else:
            self.left -= action + 1
            if not self.left:
                self.rewards = {each: 1 if each == agent else -1 for each in self.agents}
                self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = following
        self._tell()
        self._deads_step_first()

    def close(self): ...

    def _legal(self):
        return np.array([1, self.left > 1 or self._mask == "nowhere", 1], np.int8)

    def _tell(self):
        told = {"action_mask": self._legal()} if self._mask == "info" else {}
        self.infos = {agent: told for agent in self.agents}


def against(opponent="random", **kwargs):
    return turns_of(Pile, "pile")(opponent, **kwargs)


SELF, AGAINST = "test_turns:Pile", "test_turns:against"
WAIT = [1, 0, 0]


def masks(step):
    return step.next_obs.action_mask[0].astype(int).tolist()


@pytest.mark.parametrize("mask", ["observation", "info", "nowhere"])
def test_who_waits_has_one_action_and_gets_rewards(mask):
    manager = make_env_manager({"env_id": SELF, "info_keys": ["score"], "env_kwargs": {"mask": mask}}, 1, 0)
    assert manager.obs.action_mask[0].astype(int).tolist() == [[1, 1, 1], WAIT]
    # The action of the player that waits changes nothing.
    first = manager.step(np.array([[1, 2]]))
    assert masks(first) == [WAIT, [1, mask == "nowhere", 1]]
    assert first.next_obs.alive.all()
    assert not first.reward.any()
    last = manager.step(np.array([[0, 0]]))
    assert last.reward.tolist() == [[-1, 1]]
    assert last.terminated.all()
    assert last.episodes[0].info == {"score": 0, "return.player_0": -1, "return.player_1": 1}
    assert manager.step(np.array([[2, 0]])).episodes[0].info["score"] == 0
    # Player 0 takes the last of three stones.
    wins = [manager.step(np.array([[0, 0]])) for _ in range(3)][-1]
    assert wins.episodes[0].info["score"] == 1
    assert wins.episodes[0].episode_return == 0


def test_an_agent_always_has_the_same_space():
    # PettingZoo asks for it, because spaces have generators of their own.
    pile = against()
    assert pile.observation_space("player_0") is pile.observation_space("player_0")


def test_a_player_that_leaves_is_passed_over():
    manager = make_env_manager({"env_id": SELF, "env_kwargs": {"players": 3, "stones": 9}}, 1, 0)
    first = manager.step(np.array([[2, 0, 0]]))
    assert first.next_obs.alive.tolist() == [[False, True, True]]
    assert first.reward.tolist() == [[-1, 0, 0]]
    assert masks(first)[1:] == [[1, 1, 1], WAIT]
    assert masks(manager.step(np.array([[0, 1, 0]])))[1:] == [WAIT, [1, 1, 1]]
    assert masks(manager.step(np.array([[0, 0, 1]])))[1:] == [[1, 1, 1], WAIT]
    last = manager.step(np.array([[0, 2, 0]]))
    assert last.reward.tolist() == [[0, -1, 1]]
    assert last.terminated.all()


def test_against_random_play_the_policy_has_one_seat():
    settings = {"env_id": AGAINST, "info_keys": ["score"], "env_kwargs": {"stones": 6}}
    manager = make_env_manager(settings, 4, 0)
    seats, scores = set(), []
    for _ in range(200):
        there = manager.obs.alive
        assert (there.sum(axis=1) == 1).all()
        seats |= set(there.argmax(axis=1).tolist())
        # Take one if that leaves a multiple of three, else two.
        left = manager.obs.observation[np.arange(4), there.argmax(axis=1), 1]
        step = manager.step(np.repeat((left % 3 == 2).astype(int)[:, None], 2, 1))
        assert not step.reward[~there].any()
        for end in step.episodes:
            assert end.episode_return == 2 * end.info["score"] - 1
            scores.append(end.info["score"])
    assert seats == {0, 1}
    assert len(scores) > 200
    assert np.mean(scores) > 0.85
    assert manager.resume_guarantee == "exact"


@pytest.mark.slow
def test_past_selves_make_a_player_that_beats_random_play():
    settings = ["chain=league", "pool.freq=5", "league.opponents=[player_1]", "seed=1"]
    kwargs = ["env.env_kwargs.opponent=self", "env.env_kwargs.stones=6"]
    agent = minding.Agent("ppo", AGAINST, settings=[*settings, *kwargs])
    agent.learn(30_000)
    # Random play wins half of the games.
    assert agent.evaluate(200).info["score"] > 0.8
    agent.close()
