"""MaskedGrid: rules, the best return, and the vector version."""

import gymnasium
import numpy as np
import pytest

from minding.engine.data.masks import random_legal
from minding.envs import make_env_manager

ENV = {"env_id": "minding/MaskedGrid-v0", "info_keys": ["action_mask", "success"]}


def cycle(side):
    """The cell after each on a cycle through all: along the top row, then to and fro through the rows below, and up."""
    order = [(0, c) for c in range(side)]
    for k, c in enumerate(reversed(range(side))):
        rows = range(1, side)
        order += [(r, c) for r in (rows if k % 2 == 0 else reversed(rows))]
    cells = [r * side + c for r, c in order]
    return dict(zip(cells, [*cells[1:], cells[0]]))


@pytest.mark.parametrize("side", [2, 4, 6])
def test_the_best_return_visits_every_cell_from_every_start(side):
    env = gymnasium.make("minding/MaskedGrid-v0", side=side)
    follow, starts = cycle(side), set()
    for seed in range(60):
        obs, info = env.reset(seed=seed)
        here = int(obs[side**2 :].argmax())
        starts.add(here)
        total, terminated = 0.0, False
        while not terminated:
            here = follow[here]
            assert info["action_mask"][here]
            obs, reward, terminated, truncated, info = env.step(here)
            total += reward
        assert (total, info["success"], truncated) == (side**2 - 1, True, False)
    assert len(starts) > side**2 / 2


def test_legal_are_the_neighbors_that_were_not_visited():
    env = gymnasium.make("minding/MaskedGrid-v0", side=4).unwrapped
    env.reset(seed=0)
    games = env._games
    games.position[:] = 5
    games.visited[:] = np.arange(16) == 5
    assert np.flatnonzero(games._info()["action_mask"][0]).tolist() == [1, 4, 6, 9]
    obs, *_, info = env.step(6)
    assert np.flatnonzero(info["action_mask"]).tolist() == [2, 7, 10]
    assert np.flatnonzero(obs).tolist() == [5, 6, 16 + 6]
    with pytest.raises(ValueError, match="action 5 is illegal in cell 6"):
        env.step(5)
    for side in (3, 10**6):
        with pytest.raises(ValueError, match=f"side={side}: expected an even number from 2 to 64"):
            gymnasium.make("minding/MaskedGrid-v0", side=side)


def test_a_picture_shows_the_walker_and_the_cells_that_were_visited():
    env = gymnasium.make("minding/MaskedGrid-v0", side=2, render_mode="rgb_array")
    env.reset(seed=0)
    games = env.unwrapped._games
    games.position[:], games.visited[:] = 3, [True, False, False, True]
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((80, 80, 3), np.uint8)
    corners = [tuple(picture[y, x]) for y in (20, 60) for x in (20, 60)]
    assert corners == [(70, 110, 160), (235, 235, 235), (235, 235, 235), (240, 140, 40)]
    assert gymnasium.make("minding/MaskedGrid-v0").unwrapped.render() is None


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_both_versions_play_the_same_game_and_random_legal_walks_end_early(backend):
    manager = make_env_manager({**ENV, "backend": backend}, 16, 0)
    rng, returns, legal = np.random.default_rng(1), [], []
    grid = gymnasium.make("minding/MaskedGrid-v0").unwrapped._games
    for _ in range(150):
        obs = manager.obs
        action = random_legal(obs.action_mask, [36], rng)
        visited, here = obs.observation[:, :36].astype(bool), obs.observation[:, 36:].argmax(axis=1)
        step = manager.step(action)
        for n in range(16):
            grid.position[:], grid.visited[:] = here[n], visited[n]
            assert np.array_equal(grid.legal()[0], obs.action_mask[n])
            grid._move(action[n : n + 1])
            assert np.array_equal(grid._observe()[0], step.next_obs.observation[n])
            assert np.array_equal(grid.legal()[0], step.next_obs.action_mask[n])
            assert step.terminated[n] == (not grid.legal().any())
            assert step.info["success"][n] == grid.visited.all()
        returns += [end.episode_return for end in step.episodes]
        legal.append(obs.action_mask.mean())
    assert 16 < np.mean(returns) < 20
    assert np.mean(legal) < 0.08
    manager.close()


def test_the_vector_version_resumes_exactly_and_keeps_a_time_limit():
    limited = {**ENV, "backend": "native", "max_episode_steps": 3}
    first, second = make_env_manager(limited, 4, 0), make_env_manager(limited, 4, 9)
    rng = np.random.default_rng(0)
    first.step(random_legal(first.obs.action_mask, [36], rng))
    second.load_state_dict(first.state_dict())
    assert second.resume_guarantee == "exact"
    for t in range(6):
        action = random_legal(first.obs.action_mask, [36], rng)
        steps = [manager.step(action) for manager in (first, second)]
        assert np.array_equal(steps[0].obs.observation, steps[1].obs.observation)
        assert steps[0].truncated.all() == steps[1].truncated.all() == (t in (1, 4))
