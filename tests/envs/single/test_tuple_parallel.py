"""Gymnasium environments of several agents, with Tuples of spaces and a list of rewards."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from minding.engine.errors import ConfigError
from minding.envs import describe_env, make_env_manager

OTHERS = {None: Box(0, 9, (2,)), "discrete": Discrete(2), "dict": Dict(x=Box(0, 1))}


class Pair(gymnasium.Env):
    """Two agents observe their number and the step, and earn their actions; the limit of four steps is a true end."""

    max_steps = 4

    def __init__(self, n_agents=2, other=None, rewards=2):
        if n_agents:
            self.n_agents = n_agents
        self.max_steps, self._rewards = 4, rewards
        self.observation_space = Tuple([Box(0, 9, (2,)), OTHERS[other]])
        self.action_space = Tuple([Discrete(3), Discrete(3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.first = 0, self.np_random.integers(5)
        return self._seen(), {"first": self.first}

    def step(self, actions):
        assert isinstance(actions, tuple)
        self.steps += 1
        return self._seen(), [float(a) for a in actions][: self._rewards], self.steps == 4, False, {"first": self.first}

    def _seen(self):
        return tuple(np.array([m, self.steps], np.float32) for m in range(2))


gymnasium.register("test/Pair-v0", Pair)
OF_CLASS, OF_REGISTRY = "test_tuple_parallel:Pair", "test_tuple_parallel:test/Pair-v0"


@pytest.mark.parametrize("env_id", [OF_CLASS, OF_REGISTRY])
@pytest.mark.parametrize("summed", [False, True])
def test_each_entry_of_the_tuples_is_an_agent(env_id, summed):
    settings = {"env_id": env_id, "team_reward": summed, "global_state": summed, "info_keys": ["first"]}
    described = describe_env(settings)
    assert described["agents"]["names"] == ["agent_0", "agent_1"]
    assert described["max_episode_steps"] == 4
    manager = make_env_manager(settings, 3, 0)
    assert np.array_equal(manager.obs.observation, [[[0, 0], [1, 0]]] * 3)
    for _ in range(4):
        step = manager.step(np.array([[0, 1], [1, 1], [2, 1]]))
    assert np.array_equal(step.reward, [1, 2, 3] if summed else [[0, 1], [1, 1], [2, 1]])
    assert step.terminated.all()
    assert not step.truncated.any()
    assert [end.episode_return for end in step.episodes] == [4, 8, 12]
    assert np.array_equal(step.next_obs.observation, [[[0, 4], [1, 4]]] * 3)
    if summed:
        assert np.array_equal(step.obs.state, [[0, 0, 1, 0]] * 3)
    seen = np.asarray(step.info["first"])
    assert np.array_equal(seen[:, 0], seen[:, 1])


def test_a_limit_of_steps_truncates():
    manager = make_env_manager({"env_id": OF_REGISTRY, "max_episode_steps": 3}, 1, 0)
    for _ in range(3):
        step = manager.step(np.zeros((1, 2), np.int64))
    assert step.truncated.all()
    assert not step.terminated.any()
    assert step.next_obs.alive.all()


def test_level_based_foraging_runs_by_its_id():
    pytest.importorskip("lbforaging", reason="needs the extra 'lbf'")
    settings = {"env_id": "lbforaging:Foraging-8x8-2p-2f-coop-v3", "team_reward": True, "global_state": True}
    assert describe_env(settings)["max_episode_steps"] == 50
    manager = make_env_manager(settings, 2, 0)
    assert manager.obs.observation.shape == (2, 2, 12)
    assert manager.obs.state.shape == (2, 24)
    ends = [end for _ in range(50) for end in manager.step(np.full((2, 2), 5)).episodes]
    assert [end.episode_length for end in ends] == [50, 50]
    with pytest.raises(ConfigError, match="did you mean 'Foraging-8x8-2p-2f-coop-v3'"):
        describe_env({"env_id": "lbforaging:Foraging-8x8-2p-2f-cop-v3"})
