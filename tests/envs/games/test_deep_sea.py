"""DeepSea: the game, its rewards by hand, and its vector version."""

import gymnasium
import numpy as np
import pytest

from minding.envs import make_env_manager

SIZE = 4


def make(**kwargs):
    return gymnasium.make("minding/DeepSea-v0", size=SIZE, **kwargs)


def descend(env, turns):
    """Rewards and cells of an episode that goes to the right where `turns` says so."""
    right = env.unwrapped._games._right
    env.reset(seed=0)
    rewards, columns = [], [0]
    for row, turn in enumerate(turns):
        action = right[row, columns[-1]] if turn else 1 - right[row, columns[-1]]
        obs, reward, terminated, truncated, _ = env.step(int(action))
        assert (terminated, truncated) == (row == SIZE - 1, False)
        rewards.append(reward)
        cells = np.flatnonzero(obs)
        assert len(cells) == (not terminated)
        if not terminated:
            assert cells[0] // SIZE == row + 1
            columns.append(int(cells[0]) % SIZE)
    return rewards, columns


@pytest.mark.parametrize("mapping_seed", [0, 1])
def test_only_who_always_goes_right_earns_1(mapping_seed):
    env = make(mapping_seed=mapping_seed)
    assert descend(env, [1, 1, 1, 1]) == (pytest.approx([-0.0025, -0.0025, -0.0025, 0.9975]), [0, 1, 2, 3])
    assert descend(env, [1, 1, 1, 0]) == (pytest.approx([-0.0025, -0.0025, -0.0025, 0.0]), [0, 1, 2, 3])
    assert descend(env, [0, 1, 1, 1]) == (pytest.approx([0.0, -0.0025, -0.0025, -0.0025]), [0, 0, 1, 2])
    assert descend(env, [0, 0, 0, 0]) == (pytest.approx([0.0, 0.0, 0.0, 0.0]), [0, 0, 0, 0])


def test_which_action_goes_right_is_drawn_for_each_cell():
    one, same, other = (make(mapping_seed=seed).unwrapped._games._right for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert 0 < one.mean() < 1


def test_the_vector_version_plays_the_same_game_and_resumes_exactly():
    cfg = {"env_id": "minding/DeepSea-v0", "backend": "native", "env_kwargs": {"size": SIZE}}
    manager, other = make_env_manager(cfg, 3, 0), make_env_manager(cfg, 3, 1)
    singles = [make() for _ in range(3)]
    for single in singles:
        single.reset(seed=0)
    rng = np.random.default_rng(0)
    assert manager.resume_guarantee == "exact"
    for t in range(10 * SIZE):
        if t == SIZE + 2:
            other.load_state_dict(manager.state_dict())
        action = rng.integers(2, size=3)
        step = manager.step(action)
        for row, single in enumerate(singles):
            obs, reward, terminated, _, _ = single.step(int(action[row]))
            assert np.array_equal(step.next_obs[row], obs)
            assert step.reward[row] == np.float32(reward)
            assert step.terminated[row] == terminated
            if terminated:
                single.reset()
        if t >= SIZE + 2:
            theirs = other.step(action)
            assert np.array_equal(step.obs, theirs.obs)
            assert np.array_equal(step.reward, theirs.reward)
    manager.close()
    other.close()


@pytest.mark.parametrize("size", [1, 10**8])
def test_a_sea_of_one_cell_or_too_many_is_refused(size):
    with pytest.raises(ValueError, match=f"size={size}: expected 2 to 1000 rows"):
        gymnasium.make("minding/DeepSea-v0", size=size)
