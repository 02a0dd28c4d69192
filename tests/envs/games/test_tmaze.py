"""TMaze: the game, what can be reached in it with and without memory, and its vector version."""

import gymnasium
import numpy as np
import pytest

from minding.envs import make_env_manager
from minding.envs.games.tmaze import EAST, NORTH, SOUTH, WEST

LENGTH = 10


@pytest.fixture
def env():
    return gymnasium.make("minding/TMaze-v0")


def play(env, policy, seed):
    """Return and length of an episode; `policy` takes the observations so far."""
    seen, total, over = [tuple(env.reset(seed=seed)[0].astype(int))], 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(policy(seen))
        total, over = total + reward, terminated or truncated
        seen.append(tuple(obs.astype(int)))
    return total, len(seen) - 1


CELLS = {"north": (1, 0, 0, 0), "south": (0, 1, 0, 0), "corridor": (0, 0, 1, 0), "junction": (0, 0, 0, 1)}


def remembering(seen):
    return EAST if seen[-1] != CELLS["junction"] else NORTH if seen[0] == CELLS["north"] else SOUTH


def test_the_first_cell_alone_shows_the_goal(env):
    sides = set()
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        sides.add(tuple(obs.astype(int)))
        for cell in ["corridor"] * (LENGTH - 1) + ["junction"]:
            obs, reward, terminated, _, _ = env.step(EAST)
            assert (tuple(obs.astype(int)), reward, terminated) == (CELLS[cell], 0.0, False)
    assert sides == {CELLS["north"], CELLS["south"]}


def test_with_memory_every_episode_earns_1(env):
    assert {play(env, remembering, seed) for seed in range(20)} == {(1.0, LENGTH + 1)}


def test_the_other_side_earns_nothing_and_walls_cost(env):
    def turned(seen):
        return {NORTH: SOUTH, SOUTH: NORTH}.get(remembering(seen), EAST)

    assert play(env, turned, 0) == (0.0, LENGTH + 1)
    env.reset(seed=0)
    steps = [WEST, NORTH, SOUTH, EAST, NORTH, WEST, *[EAST] * LENGTH, EAST]
    rewards = [env.step(action)[1] for action in steps]
    assert rewards == [-0.025, -0.025, -0.025, 0.0, -0.025, 0.0, *[0.0] * LENGTH, -0.025]
    truncated = [env.step(WEST)[3] for _ in range(100 - len(steps))]
    assert truncated == [False] * (len(truncated) - 1) + [True]


def test_the_vector_version_plays_the_same_game():
    manager = make_env_manager({"env_id": "minding/TMaze-v0"}, 8, 0)
    rng, singles = np.random.default_rng(0), [gymnasium.make("minding/TMaze-v0") for _ in range(8)]

    def follow(row, obs):
        """Puts the single environment where an episode of the vector version begins."""
        singles[row].reset(seed=0)
        singles[row].unwrapped._games.north[:] = obs[row, 0] == 1.0

    for row in range(8):
        follow(row, manager.obs)
    ends = 0
    for _ in range(400):
        action = rng.choice(4, size=8, p=[0.7, 0.1, 0.1, 0.1])
        step = manager.step(action)
        for row, single in enumerate(singles):
            obs, reward, terminated, truncated, _ = single.step(action[row])
            assert np.array_equal(step.next_obs[row], obs)
            assert step.reward[row] == np.float32(reward)
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
            if terminated or truncated:
                ends += 1
                follow(row, step.obs)
    assert ends > 50
    manager.close()


def test_the_vector_version_keeps_its_time_limit_and_resumes_exactly():
    cfg = {"env_id": "minding/TMaze-v0", "backend": "native"}
    manager, other = make_env_manager(cfg, 4, 0), make_env_manager(cfg, 4, 1)
    ends = [manager.step(np.full(4, WEST)).truncated.all() for _ in range(100)]
    assert ends == [False] * 99 + [True]
    manager.step(np.array([EAST, WEST, EAST, NORTH]))
    other.load_state_dict(manager.state_dict())
    assert manager.resume_guarantee == "exact"
    for t in range(60):
        action = np.array([EAST, EAST, (EAST, NORTH)[t % 12 == 11], EAST])
        action[manager.obs[:, 3] == 1] = NORTH
        mine, theirs = manager.step(action), other.step(action)
        assert np.array_equal(mine.obs, theirs.obs)
        assert np.array_equal(mine.reward, theirs.reward)
    manager.close()
    other.close()


def test_a_corridor_without_length_is_refused():
    with pytest.raises(ValueError, match="length=0: expected at least 1 step"):
        gymnasium.make("minding/TMaze-v0", length=0)
