"""StarCraft's multi-agent interface as an environment of several agents."""

import sys
import types

import numpy as np

from minding.envs import make_env_manager


class Skirmish:
    """Two units, three actions, four steps; the second unit dies in step 2. It has SMAC's interface.

    Args:
      map_name: 'win' ends with a victory in step 3, 'long' runs into the limit.
    """

    def __init__(self, map_name="long", difficulty="7"):
        self.map_name, self.difficulty, self.steps = map_name, difficulty, 0

    def get_env_info(self):
        return {"state_shape": 3, "obs_shape": 2, "n_actions": 3, "n_agents": 2, "episode_limit": 4}

    def reset(self):
        self.steps = 0
        return self.get_obs(), self.get_state()

    def step(self, actions):
        for m, action in enumerate(actions):
            assert self.get_avail_actions()[m][int(action)], (self.steps, m, action)
        self.steps += 1
        won = self.map_name == "win" and self.steps == 3
        info = {"battle_won": won, "dead_allies": int(self.steps >= 2), "dead_enemies": 0}
        if self.steps == 4:
            info["episode_limit"] = True
        return 2.0, won or self.steps == 4, info

    def get_obs(self):
        return [np.array([m, self.steps], np.float32) * (m == 0 or self.steps < 2) for m in range(2)]

    def get_state(self):
        return np.array([self.steps, 1, 2], np.float32)

    def get_avail_actions(self):
        return [[0, 1, 1], [0, 1, 0] if self.steps < 2 else [1, 0, 0]]

    def close(self): ...


ENV = {"env_id": "test_smac:Skirmish", "info_keys": ["battle_won", "dead_allies"], "global_state": True}


def manager_of(map_name, **env):
    return make_env_manager({**ENV, "env_kwargs": {"map_name": map_name}, **env}, 1, 0)


def test_the_dead_leave_and_the_reward_is_that_of_the_team():
    manager = manager_of("long")
    assert manager.obs.action_mask[0].astype(int).tolist() == [[0, 1, 1], [0, 1, 0]]
    alive, rewards, masks = [], [], []
    for _ in range(4):
        step = manager.step(np.array([[2, 1]]))
        alive.append(step.next_obs.alive[0].tolist())
        masks.append(step.next_obs.action_mask[0, 1].tolist())
        rewards.append(float(step.reward[0]))
    assert alive == [[True, True], [True, False], [True, False], [True, False]]
    assert masks[0] == [False, True, False]
    assert masks[1] == [True, True, True]
    assert rewards == [2, 2, 2, 2]
    assert (step.truncated.tolist(), step.terminated.tolist()) == ([True], [False])
    assert step.episodes[0].episode_return == 8
    assert step.episodes[0].info == {"battle_won": 0, "dead_allies": 1}
    assert step.next_obs.state[0].tolist() == [4, 1, 2]


def test_a_victory_is_a_true_end():
    manager = manager_of("win")
    for _ in range(3):
        step = manager.step(np.array([[2, 1]]))
    assert (step.truncated.tolist(), step.terminated.tolist()) == ([False], [True])
    assert step.episodes[0].info == {"battle_won": 1, "dead_allies": 1}
    assert not step.next_obs.alive.any()


def test_a_map_of_the_game_is_an_id(monkeypatch):
    package, module = types.ModuleType("smac"), types.ModuleType("smac.env")
    module.StarCraft2Env = Skirmish
    monkeypatch.setitem(sys.modules, "smac", package)
    monkeypatch.setitem(sys.modules, "smac.env", module)
    manager = make_env_manager({"env_id": "smac/win", "env_kwargs": {"difficulty": "3"}}, 1, 0)
    assert manager.obs.observation.shape == (1, 2, 2)
    env = manager._source._group._envs[0].env.parallel.env
    assert (env.map_name, env.difficulty) == ("win", "3")
