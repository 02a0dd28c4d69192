"""Environments of several agents: one place for each on the agents axis, whoever is there."""

import contextlib

import numpy as np
import pytest
from agent_worlds import Squad

from minding.engine.data import obs_trees
from minding.engine.types import EpisodeEnd
from minding.envs import describe_env, make_env_manager

A, B, C = range(3)


def actions(num_envs, value=0):
    return np.full((num_envs, 3), value, np.int64)


@pytest.fixture
def squad(make):
    def make_squad(num_envs=2, seed=0, training=True, env=None, **kwargs):
        return make("Squad", num_envs, seed, training, env_kwargs=kwargs, **(env or {}))

    return make_squad


def test_the_description_is_that_of_one_agent_and_names_all():
    description = describe_env({"env_id": "worlds:Squad"})
    assert description["observation"]["spaces"]["observation"]["shape"] == [4]
    assert description["action"] == {"kind": "discrete", "n": 2, "start": 0}
    assert description["env_action"]["start"] == 5
    assert description["num_agents"] == 3
    own = {"observation": description["observation"], "action": description["action"]}
    assert description["agents"] == {"names": ["a", "b", "c"], "spaces": [own] * 3, "state": None, "team_reward": False}


@pytest.mark.parametrize("backend", ["sync", "subprocess"])
def test_each_agent_has_its_place_and_ends_are_those_of_the_team(squad, backend):
    manager = squad(3, env={"backend": backend, "workers": 2})
    obs = manager.obs
    running = np.zeros(3)
    for step_number in range(30):
        action = np.array([[0, 1, step_number % 2]] * 3)
        step = manager.step(action)
        running += 1
        seen = step.next_obs.observation
        assert seen.shape == (3, 3, 4)
        assert np.array_equal(seen[..., 0], obs.observation[..., 0])
        assert np.array_equal(seen[..., 1], np.repeat(running[:, None], 3, 1))
        assert np.array_equal(seen[..., 2:], np.stack([np.broadcast_to([A, B, C], (3, 3)), action + 5], -1))
        assert step.reward.dtype == np.float32
        assert np.array_equal(step.reward, running[:, None] + [0, 10, 20])
        over = step.terminated | step.truncated
        assert step.terminated.shape == (3,)
        for end in step.episodes:
            length = int(running[end.env_id])
            own = length * (length + 1) / 2
            returns = {"return.a": own, "return.b": own + 10 * length, "return.c": own + 20 * length}
            assert end == EpisodeEnd(end.env_id, sum(returns.values()), length, returns)
            assert step.terminated[end.env_id] == (length % 2 == 0)
            # Those that a time limit stops could have gone on.
            assert step.next_obs.alive[end.env_id].tolist() == [length % 2 == 1] * 3
        assert np.array_equal(np.flatnonzero(over), [end.env_id for end in step.episodes])
        running[over] = 0
        assert np.array_equal(step.obs.observation[..., 1], np.repeat(running[:, None], 3, 1))
        assert step.obs.alive.all()
        obs = step.obs


def test_one_that_leaves_is_gone_until_the_next_episode(squad):
    manager = squad(1, leave=2, length=4)
    alive, rewards, seen = [], [], []
    for _ in range(4):
        step = manager.step(actions(1))
        alive.append(step.next_obs.alive[0].tolist())
        rewards.append(step.reward[0].tolist())
        seen.append(step.next_obs.observation[0, B].tolist())
    assert alive == [[True, True, True], [True, False, True], [True, False, True], [False, False, False]]
    assert rewards == [[1, 11, 21], [2, 12, 22], [3, 0, 23], [4, 0, 24]]
    # Its last observation is the true one, then there is none.
    assert seen[1][1:] == [2, B, 5]
    assert seen[2] == seen[3] == [0, 0, 0, 0]
    assert step.obs.alive.tolist() == [[True, True, True]]
    assert step.episodes[0].info == {"return.a": 10, "return.b": 23, "return.c": 90}


def test_a_joined_state_has_zeros_for_one_that_leaves(squad):
    class Stateless(Squad):
        def state(self):
            raise NotImplementedError

    manager = make_env_manager({"global_state": True}, 1, 0, env_fn=lambda: Stateless(leave=2, length=4))
    for present in ([1, 1, 1], [1, 0, 1], [1, 0, 1], [0, 0, 0]):
        step = manager.step(actions(1))
        state = step.next_obs.state[0].reshape(3, 4)
        assert (step.next_obs.alive[0] == present).all()
        assert np.array_equal(state, step.next_obs.observation[0] * np.array(present)[:, None])


def test_a_terminated_agent_has_no_future_at_a_time_limit(squad):
    manager = squad(1, leave=3, length=3)
    for _ in range(3):
        step = manager.step(actions(1))
    assert step.truncated.tolist() == [True]
    assert step.next_obs.alive.tolist() == [[True, False, True]]


def test_one_that_comes_late_has_nothing_before(squad):
    manager = squad(1, late=2, length=4)
    assert manager.obs.alive.tolist() == [[True, True, False]]
    assert manager.obs.observation[0, C].tolist() == [0, 0, 0, 0]
    rewards = []
    for _ in range(3):
        step = manager.step(actions(1))
        rewards.append(step.reward[0, C])
    assert rewards == [0, 0, 23]
    assert step.obs.alive.tolist() == [[True, True, True]]


def test_an_end_counts_also_if_the_agent_is_still_listed(squad):
    manager = squad(1, length=3, odd="keeps")
    ends = [bool(manager.step(actions(1)).truncated[0]) for _ in range(3)]
    assert ends == [False, False, True]


def test_a_time_limit_of_ours_truncates_and_all_live_on(squad):
    manager = squad(1, length=6, env={"max_episode_steps": 2})
    manager.step(actions(1))
    step = manager.step(actions(1))
    assert (step.truncated.tolist(), step.terminated.tolist()) == ([True], [False])
    assert step.next_obs.alive.all()
    assert step.episodes[0].episode_length == 2
    assert describe_env({"env_id": "worlds:Squad", "max_episode_steps": 2})["max_episode_steps"] == 2


def test_the_state_joins_the_observation_where_asked_for(squad):
    assert "state" not in dict(obs_trees.leaves(squad(1).obs))
    manager = squad(2, length=3, env={"global_state": True})
    assert manager.obs.state.shape == (2, 3)
    assert manager.obs.state.dtype == np.float32
    step = manager.step(actions(2))
    assert np.array_equal(step.obs.state[:, 0], step.obs.observation[:, 0, 0])
    assert step.obs.state[:, 1:].tolist() == [[1, 3], [1, 3]]
    described = describe_env({"env_id": "worlds:Squad", "global_state": True})
    assert described["agents"]["state"]["shape"] == [3]


def test_one_reward_for_the_team_is_the_sum(squad):
    manager = squad(2, length=2, env={"team_reward": True})
    assert manager.step(actions(2)).reward.tolist() == [33, 33]
    step = manager.step(actions(2))
    assert step.episodes[0] == EpisodeEnd(0, 33 + 36, 2)
    assert np.array_equal(step.team_reward, step.reward)


def test_the_sum_of_individual_rewards_is_the_team_s(squad):
    assert squad(2).step(actions(2)).team_reward.tolist() == [33, 33]


@pytest.mark.parametrize("place", ["obs", "info"])
def test_each_agent_has_its_mask_and_absent_ones_a_full_one(squad, place):
    env = {"info_keys": ["action_mask"]} if place == "info" else {}
    manager = squad(1, leave=1, length=3, mask=place, env=env)
    entry = "observation" if place == "info" else "seen"
    assert manager.obs.action_mask.dtype == bool
    assert manager.obs.action_mask[0].tolist() == [[True, False], [False, True], [True, False]]
    assert manager.obs[entry].shape == (1, 3, 4)
    step = manager.step(actions(1))
    assert step.obs.action_mask[0].tolist() == [[False, True], [True, True], [False, True]]
    env = {"env_id": "worlds:Squad", "env_kwargs": {"mask": place}, **env}
    assert describe_env(env)["observation"]["spaces"]["action_mask"] == {"kind": "action_mask", "counts": [2]}


def test_declared_info_has_zeros_for_silent_agents(squad):
    manager = squad(1, leave=1, length=3, env={"info_keys": ["load"]})
    loads = [manager.step(actions(1)).info["load"].tolist() for _ in range(2)]
    assert loads == [[[1, 101, 201]], [[2, 0, 202]]]
    description = describe_env({"env_id": "worlds:Squad", "info_keys": ["load"]})
    assert description["info"] == {"load": {"shape": [], "dtype": "float32"}}


def test_info_of_the_last_step_alone_is_zero_before():
    class Late(Squad):
        def tell(self, agents):
            obs, infos = super().tell(agents)
            return obs, infos if self.steps == self.length else {agent: {} for agent in infos}

    manager = make_env_manager({"info_keys": ["load"]}, 1, 0, env_fn=lambda: Late(length=3))
    manager.reset()
    loads = [manager.step(actions(1)).info["load"].tolist() for _ in range(4)]
    assert loads == [[[0, 0, 0]], [[0, 0, 0]], [[3, 103, 203]], [[0, 0, 0]]]


def test_the_state_of_a_manager_restores_everything(squad):
    env = {"normalize_reward": True}
    first, second = squad(2, 3, leave=2, env=env), squad(2, 9, leave=2, env=env)
    for _ in range(9):
        first.step(actions(2, 1))
    second.load_state_dict(first.state_dict())
    assert second.resume_guarantee == "exact"
    for _ in range(12):
        one, other = first.step(actions(2)), second.step(actions(2))
        assert np.array_equal(one.obs.observation, other.obs.observation)
        assert np.array_equal(one.obs.alive, other.obs.alive)
        assert np.array_equal(one.reward, other.reward)
        assert one.episodes == other.episodes


def test_normalized_rewards_share_one_scale(squad):
    manager = squad(2, length=6, env={"normalize_reward": True})
    manager.step(actions(2))
    reward = manager.step(actions(2)).reward
    # Returns so far: 0 before the first step, 1, 11, 21 of each, then 0.99 times these plus 2, 12, 22.
    returns = np.array([0, 0, 0, 1, 11, 21, 2.99, 22.89, 42.79] * 2)
    assert reward[0] == pytest.approx(np.array([2, 12, 22]) / returns.std(), rel=1e-5)


def test_nothing_is_owed_to_one_that_was_gone_before(squad):
    manager = squad(1, odd="no reward", leave=1, length=4)
    assert [manager.step(actions(1)).reward[0].tolist() for _ in range(3)] == [[1, 11, 21], [2, 0, 22], [3, 0, 23]]


def test_a_fault_can_restart_the_environment(squad):
    manager = squad(2, odd="nan", length=6, env={"on_error": "restart"})
    manager.step(actions(2))
    step = manager.step(actions(2))
    assert step.valid.tolist() == [False, False]
    assert step.reward.tolist() == [[0, 0, 0]] * 2
    assert step.obs.alive.all()
    assert manager.episode_steps.tolist() == [0, 0]


@pytest.mark.parametrize("backend", ["sync", "native"])
@pytest.mark.parametrize(("env_id", "key"), [("minding/Battle-v0", "battle_won"), ("minding/Duel-v0", "score")])
def test_declared_results_are_passed_on_without_being_asked_for(env_id, key, backend):
    settings = {"env_id": env_id, "backend": backend, "max_episode_steps": 2}
    assert [*describe_env(settings)["info"]] == [key]
    with contextlib.closing(make_env_manager(settings, 2, 0)) as manager:
        ends = [
            end for _ in range(2) for end in manager.step(np.ones((2, *manager.obs["alive"].shape[1:]), int)).episodes
        ]
    assert [key in end.info for end in ends] == [True, True]
