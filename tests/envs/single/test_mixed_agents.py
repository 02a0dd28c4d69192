"""Agents whose spaces differ: arrays as large as the largest, masks for what an agent does not have."""

import numpy as np
import pytest

from minding.engine.data import obs_trees
from minding.engine.data.agent_axis import own_view
from minding.envs import describe_env, make_env_manager

TEAM = ("a", "b", "c")


@pytest.fixture
def mixed(make):
    def make_mixed(num_envs=1, world="Mixed", env=None, **kwargs):
        return make(world, num_envs, env_kwargs=kwargs, **(env or {}))

    return make_mixed


def act(manager, rows):
    return manager.step(np.broadcast_to(rows, (manager.num_envs, *np.shape(rows))))


def test_smaller_observations_end_with_zeros(mixed):
    manager = mixed(2, length=6)
    obs = act(manager, np.array([1, 3, 2])).obs
    start = obs.observation[:, 0, 0]
    assert obs.observation.shape == (2, 3, 4)
    assert obs.observation[:, 0].tolist() == [[start[n], 1, 0, 0] for n in range(2)]
    assert obs.observation[:, 1].tolist() == [[start[n], 1, 1, 5] for n in range(2)]
    assert obs.observation[:, 2].tolist() == [[start[n], 1, 2, 0] for n in range(2)]


def test_fewer_actions_are_a_mask_per_agent(mixed):
    manager = mixed(length=6, leave=1)
    legal = [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]]
    assert manager.obs.action_mask[0].tolist() == [[bool(x) for x in row] for row in legal]
    # 'b' counts from 7.
    assert act(manager, np.array([1, 3, 2])).reward.tolist() == [[1, 10, 2]]
    step = act(manager, np.array([1, 3, 2]))
    assert step.reward.tolist() == [[1, 0, 2]]
    assert step.obs.action_mask[0].tolist() == [[bool(x) for x in row] for row in legal]


def test_the_choices_of_a_multi_discrete_action_are_filled_up(mixed):
    manager = mixed(length=6, actions="pairs")
    # 2 of 4 and 3 of 3, 4 of 4 and 2 of 3, 3 of 4 and 1 of 3.
    assert manager.obs.action_mask[0].astype(int).tolist() == [
        [1, 1, 0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 0, 1, 0, 0],
    ]
    assert act(manager, np.array([[1, 2], [3, 1], [2, 0]])).reward.tolist() == [[3, 4, 2]]


def test_numbers_of_other_bounds_are_mapped_to_each_agent_s_own(mixed):
    manager = mixed(length=6, actions="box")
    described = describe_env({"env_id": "worlds:Mixed", "env_kwargs": {"actions": "box"}})
    assert described["env_action"]["low"] == [-2, -2, 0]
    assert described["env_action"]["high"] == [4, 4, 1]
    assert [own["action"]["shape"] for own in described["agents"]["spaces"]] == [[1], [3], [2]]
    # The middle, then the upper bound, of what each agent has.
    assert act(manager, np.zeros((3, 3), np.float32)).reward.tolist() == [[0.5, 1.5, 2]]
    assert act(manager, np.ones((3, 3), np.float32)).reward.tolist() == [[1, 3, 8]]


def test_a_mask_of_one_agent_is_joined_with_the_others(mixed):
    manager = mixed(length=6, mask="b")
    assert manager.obs.action_mask[0].astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 1, 0]]
    described = describe_env({"env_id": "worlds:Mixed", "env_kwargs": {"mask": "b"}})
    assert described["observation"]["spaces"]["action_mask"] == {"kind": "action_mask", "counts": [4]}
    own = [each["observation"]["spaces"] for each in described["agents"]["spaces"]]
    assert ["action_mask" in spaces for spaces in own] == [False, True, False]


@pytest.mark.parametrize("kwargs", [{}, {"mask": "b"}, {"actions": "pairs"}, {"actions": "pairs", "mask": "a"}])
def test_an_agents_own_view_has_its_own_sizes(mixed, kwargs):
    manager = mixed(2, length=6, **kwargs)
    spec = describe_env({"env_id": "worlds:Mixed", "env_kwargs": kwargs})
    for m, agent in enumerate(TEAM):
        view = own_view(manager.obs, spec, m)
        size = {"a": 2, "b": 4, "c": 3}[agent]
        assert np.array_equal(view["observation"], manager.obs.observation[:, m, :size])
        assert ("action_mask" in view) == (kwargs.get("mask") == agent)
        if agent == kwargs.get("mask"):
            own = [0, 0, 0, 1] if agent == "b" else [0, 1, 0, 0, 1]
            assert view["action_mask"].astype(int).tolist() == [own] * 2
        described = spec["agents"]["spaces"][m]["observation"]["spaces"]
        assert set(view) == set(described)


def test_an_environment_may_say_that_reward_and_info_are_shared(mixed):
    manager = mixed(2, "Shared", length=2, env={"info_keys": ["joint", "load"]})
    step = act(manager, np.array([1, 3, 2]))
    assert step.reward.tolist() == [13, 13]
    assert step.info["joint"].tolist() == [1, 1]
    assert step.info["load"].tolist() == [[1, 101, 201]] * 2
    end = act(manager, np.array([1, 3, 2])).episodes[0]
    assert end.info == {"joint": 2.0}
    spec = describe_env({"env_id": "worlds:Shared", "info_keys": ["joint", "load"]})
    assert spec["agents"]["team_reward"]
    assert [spec["info"][key]["shape"] for key in ("joint", "load")] == [[], []]


MPE = [
    # name, agents, observation, actions
    ("simple_tag_v3", 4, 16, 5),
    ("simple_speaker_listener_v4", 2, 11, 5),
    ("simple_reference_v3", 2, 21, 50),
    ("simple_adversary_v3", 3, 10, 5),
    ("simple_spread_v3", 3, 18, 5),
]


@pytest.mark.parametrize(("name", "agents", "numbers", "actions"), MPE)
@pytest.mark.parametrize("continuous", [False, True])
def test_environments_of_mpe_with_agents_of_different_kinds(name, agents, numbers, actions, continuous):
    pytest.importorskip("mpe2", reason="needs the extra 'mpe'")
    env = {
        "env_id": f"mpe2/{name}",
        "env_kwargs": {"max_cycles": 4, "continuous_actions": continuous},
        "global_state": True,
    }
    spec = describe_env(env)
    assert (spec["num_agents"], spec["max_episode_steps"]) == (agents, 4)
    manager = make_env_manager(env, 2, 0)
    try:
        obs = manager.obs
        assert obs.observation.shape == (2, agents, numbers)
        own = np.concatenate([own_view(obs, spec, m)["observation"] for m in range(agents)], axis=1)
        assert np.array_equal(own, obs.state)
        for _ in range(4):
            if continuous:
                step = manager.step(np.zeros((2, agents, *spec["action"]["shape"]), np.float32))
            else:
                assert spec["action"]["n"] == actions
                step = manager.step(np.ones((2, agents), np.int64))
        assert step.truncated.all()
        assert step.next_obs.alive.all()
    finally:
        manager.close()


def test_an_aec_environment_plays_the_game_of_its_parallel_form():
    pytest.importorskip("mpe2", reason="needs the extra 'mpe'")
    steps = []
    for form in ("env", "parallel_env"):
        env = {"env_id": f"mpe2.simple_tag_v3:{form}", "env_kwargs": {"max_cycles": 3}}
        assert describe_env(env)["max_episode_steps"] == 3
        manager = make_env_manager(env, 2, 0)
        manager.reset()
        steps.append([manager.step(np.full((2, 4), k)) for k in range(4)])
        manager.close()
    for one, other in zip(*steps):
        assert all(
            np.array_equal(a, b) for (_, a), (_, b) in zip(obs_trees.leaves(one.obs), obs_trees.leaves(other.obs))
        )
        assert np.array_equal(one.reward, other.reward)
        assert one.episodes == other.episodes


@pytest.mark.filterwarnings("ignore:The old environment creation API")
def test_environments_of_pettingzoo_are_ids_by_family_and_name():
    env = {"env_id": "pettingzoo/classic/rps_v2"}
    spec = describe_env(env)
    assert (spec["num_agents"], spec["max_episode_steps"], spec["action"]["n"]) == (2, 15, 3)
    manager = make_env_manager(env, 1, 0)
    # Paper covers rock.
    assert manager.step(np.array([[0, 1]])).reward.tolist() == [[-1, 1]]
    manager.close()
