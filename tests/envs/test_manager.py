"""The manager over all backends: accounting, seeds, actions, aliasing, resume."""

import gymnasium
import numpy as np
import pytest

from minding.engine.data import obs_trees
from minding.engine.errors import EnvError
from minding.engine.types import EpisodeEnd
from minding.envs import check_env, describe_env, make_env_manager
from minding.envs.random_play import RandomPlay

BACKENDS = ["sync", "subprocess"]
ZEROS = np.zeros(2, np.int64)


def play(manager, steps, action=None):
    """Steps with one action; returns copies of (obs, next_obs, reward, valid) at each step."""
    action = np.zeros(manager.num_envs, np.int64) if action is None else action
    rows = []
    for _ in range(steps):
        step = manager.step(action)
        valid = np.ones(manager.num_envs, bool) if step.valid is None else step.valid
        rows.append((step.obs.copy(), step.next_obs.copy(), step.reward.copy(), valid.copy()))
    return rows


def equal_streams(left, right):
    return all(np.array_equal(a, b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other))


@pytest.mark.parametrize("backend", BACKENDS)
def test_final_observations_are_true_successors(make, backend):
    manager = make("Counter", 3, backend=backend, workers=2)
    obs = manager.obs
    running = np.zeros(3)
    for _ in range(60):
        step = manager.step(np.zeros(3, np.int64))
        running += 1
        assert np.array_equal(step.next_obs[:, 1], running)
        assert np.array_equal(step.next_obs[:, 0], obs[:, 0])
        over = step.terminated | step.truncated
        assert [end.env_id for end in step.episodes] == np.flatnonzero(over).tolist()
        for end in step.episodes:
            length = int(running[end.env_id])
            assert end == EpisodeEnd(end.env_id, length * (length + 1) / 2, length)
            assert step.terminated[end.env_id] == (length % 2 == 0)
        assert (step.obs is step.next_obs) == (not over.any())
        running[over] = 0
        assert np.array_equal(step.obs[:, 1], running)
        assert step.valid is None
        obs = step.obs
    assert obs is manager.obs


def test_the_seed_decides_the_stream(make):
    streams = [play(make("Counter", seed=seed), 30) for seed in (7, 7, 8)]
    assert equal_streams(streams[0], streams[1])
    assert not equal_streams(streams[0], streams[2])


def test_environments_of_one_manager_have_different_seeds(make):
    assert len(set(make("Counter", 8).reset()[:, 0].tolist())) == 8


def test_sync_and_subprocess_give_the_same_stream(make):
    streams = []
    for backend in BACKENDS:
        manager = make("Counter", 3, seed=3, backend=backend)
        streams.append([manager.reset().copy()] + [row[0] for row in play(manager, 40)])
    assert all(np.array_equal(a, b) for a, b in zip(*streams))


def test_reset_with_a_seed_begins_its_stream_again(make):
    manager = make("Counter", seed=5)
    first = manager.reset().copy()
    play(manager, 20)
    assert not np.array_equal(manager.reset(), first)
    assert np.array_equal(manager.reset(5), first)


def test_observations_never_alias_memory_that_later_steps_write(make):
    manager = make("Recycler", 2)
    held = [(manager.obs, manager.obs.copy())]
    for _ in range(30):
        step = manager.step(ZEROS)
        held += [(step.obs, step.obs.copy()), (step.next_obs, step.next_obs.copy()), (step.reward, step.reward.copy())]
        held += [(step.terminated, step.terminated.copy()), (step.truncated, step.truncated.copy())]
    assert all(np.array_equal(kept, copy) for kept, copy in held)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_observations_become_trees_of_stacked_arrays(make, backend):
    manager = make("Nested", 2, backend=backend)
    assert [path for path, _ in obs_trees.leaves(manager.obs)] == ["camera", "joint.position", "pair.0", "pair.1"]
    step = manager.step(np.array([[2, 1], [0, 1]]))
    assert step.obs.camera.shape == (2, 1, 2, 2)
    assert step.obs.camera.dtype == np.uint8
    assert step.obs.joint.position.dtype == np.float32
    assert step.obs.joint.position.tolist() == [[0.25] * 3] * 2
    assert step.obs.pair["0"].tolist() == [1, 1]
    assert step.obs.pair["1"].tolist() == [[1, 0], [1, 0]]
    assert step.reward.tolist() == [21.0, 1.0]
    play_on = [manager.step(np.zeros((2, 2), np.int64)) for _ in range(2)]
    assert play_on[-1].next_obs.joint.position.tolist() == [[0.75] * 3] * 2
    assert play_on[-1].obs.joint.position.tolist() == [[0.0] * 3] * 2


def test_box_actions_are_mapped_to_the_bounds_and_clipped(make):
    manager = make("Torque", 3)
    manager.reset()
    step = manager.step(np.array([[-1.0, 0.0], [0.5, 1.0], [9.0, -9.0]]))
    assert step.obs.tolist() == [[-2.0, 0.5], [4.0, 1.0], [6.0, 0.0]]


def test_discrete_actions_count_from_zero_for_the_policy():
    class Offset(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(20, start=5)
        action_space = gymnasium.spaces.Discrete(3, start=7)

        def reset(self, *, seed=None, options=None):
            return 5, {}

        def step(self, action):
            return action, 0.0, False, False, {}

    manager = make_env_manager({}, 2, 0, env_fn=Offset)
    assert manager.obs.tolist() == [0, 0]
    assert manager.step(np.array([0, 2])).obs.tolist() == [2, 4]
    manager.close()


def test_stepping_resets_first_and_is_an_error_after_close(make):
    manager = make("Counter")
    assert manager.step(ZEROS).next_obs[:, 1].tolist() == [1.0, 1.0]
    manager.close()
    manager.close()
    with pytest.raises(EnvError, match="closed"):
        manager.step(ZEROS)


@pytest.mark.parametrize(("clip", "largest"), [(None, 10.0), (20.0, 20.0), (float("inf"), np.inf)])
def test_a_first_success_after_zeros_is_clipped_at_10(make, clip, largest):
    manager = make("Late", 1, env_kwargs={"zeros": 999}, normalize_reward=True, reward_clip=clip)
    manager.reset()
    rewards = [manager.step(np.zeros(1, np.int64)).reward.item() for _ in range(1000)]
    assert rewards[:-1] == [0.0] * 999
    # One return of 1 among 1,000 of 0.
    assert rewards[-1] == pytest.approx(min(largest, 1.0 / np.std([0.0] * 1000 + [1.0])))


def test_normalized_rewards_leave_returns_and_evaluation(make):
    manager = make("Counter", 2, normalize_reward=True, reward_clip=0.5)
    manager.reset()
    ends, largest = [], 0.0
    for _ in range(40):
        step = manager.step(ZEROS)
        ends += step.episodes
        largest = max(largest, float(step.reward.max()))
    assert largest == 0.5
    assert all(end.episode_return == end.episode_length * (end.episode_length + 1) / 2 for end in ends)
    evaluation = make("Counter", 1, normalize_reward=True, reward_clip=0.5, training=False)
    evaluation.reset()
    assert [evaluation.step(np.zeros(1, np.int64)).reward.item() for _ in range(2)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("world", "env"),
    [
        ("Counter", {"backend": "sync"}),
        ("Counter", {"backend": "subprocess", "workers": 2}),
        ("CartPole-v1", {"backend": "native"}),
    ],
)
def test_a_restored_manager_goes_on_as_if_nothing_had_happened(make, world, env):
    original = make(world, 4, seed=1, normalize_reward=True, **env)
    original.reset()
    play(original, 33)
    state = original.state_dict()
    restored = make(world, 4, seed=99, normalize_reward=True, **env)
    restored.load_state_dict(state)
    assert restored.resume_guarantee == "exact"
    assert np.array_equal(restored.obs, original.obs)
    assert equal_streams(play(original, 50), play(restored, 50))
    assert [original.step(np.ones(4, np.int64)).episodes for _ in range(20)] == [
        restored.step(np.ones(4, np.int64)).episodes for _ in range(20)
    ]


def test_an_ignored_seed_resumes_at_an_episode_boundary(make, caplog):
    original = make("Unseeded", 2, seed=1)
    original.reset()
    play(original, 1)
    restored = make("Unseeded", 2, seed=1)
    restored.load_state_dict(original.state_dict())
    assert restored.resume_guarantee == "episode-boundary"
    assert "begin new episodes" in caplog.text
    assert restored.obs[:, 1].tolist() == [0.0, 0.0]
    ends = [end for _ in range(12) for end in restored.step(ZEROS).episodes]
    assert all(end.episode_return == end.episode_length * (end.episode_length + 1) / 2 for end in ends)


def test_a_mask_of_binary_actions_has_two_entries_for_each(make):
    env = {"env_id": "worlds:Switches", "info_keys": ["action_mask"], "env_kwargs": {"masked": True}}
    assert describe_env(env)["observation"]["spaces"]["action_mask"]["counts"] == [2, 2, 2, 2]
    assert any("the action mask leaves 50% of the actions" in found.text for found in check_env(env, 50))
    manager = make("Switches", 2, **{key: value for key, value in env.items() if key != "env_id"})
    manager.reset()
    assert RandomPlay(manager, describe_env(env)).step().reward.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("world", "guarantee"),
    [
        *((world, "exact") for world in ("Counter", "Nested", "Squad")),
        *((world, "episode-boundary") for world in ("Unseeded", "Clocked", "Shortening")),
        *((world, "episode-boundary") for world in ("normalized_obs", "normalized_reward")),
    ],
)
def test_the_guarantee_is_known_before_the_first_step(make, world, guarantee):
    manager = make(world, 2)
    assert manager.resume_guarantee == guarantee
    manager.reset()
    assert (manager.resume_guarantee, manager.fault_count) == (guarantee, 0)


@pytest.mark.parametrize(("kind", "backend"), [("raise", "sync"), ("hang", "sync"), ("die", "subprocess")])
def test_faults_do_not_count_as_ignoring_the_seed(make, kind, backend):
    limit = 0.2 if kind == "hang" else 30.0
    manager = make("Faulty", 1, env_kwargs={"kind": kind}, step_timeout=limit, backend=backend)
    assert (manager.resume_guarantee, manager.fault_count) == ("exact", 0)
