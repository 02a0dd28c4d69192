"""What all games have in common, and the rules of those with one player."""

import gymnasium
import numpy as np
import pytest

import minding.envs  # noqa: F401 - registers it
from minding.engine.data import obs_trees
from minding.envs import describe_env, make_env_manager
from minding.envs.games.memory_games import EAST, NORTH, SOUTH, WEST
from minding.envs.random_play import RandomPlay

MASKED = {"info_keys": ["action_mask", "success"]}
SINGLE = {
    "minding/DeepSea-v0": {"env_kwargs": {"size": 4}},
    "minding/MaskedGrid-v0": MASKED,
    "minding/RepeatPrevious-v0": {},
    "minding/TMaze-v0": {},
}
RESUMED = {
    **SINGLE,
    "minding/Battle-v0": {"env_kwargs": {"map_name": "5v5"}, "global_state": True},
    "minding/Duel-v0": {"info_keys": ["score"]},
    "minding/ConnectFour-v0": {"env_kwargs": {"opponent": "uct:10"}},
    "mpe2/simple_spread_v3": {"env_kwargs": {"max_cycles": 9}, "global_state": True, "normalize_reward": True},
    "mpe2/simple_tag_v3": {"env_kwargs": {"max_cycles": 9}, "global_state": True, "normalize_reward": True},
}


@pytest.fixture
def played():
    """(environment, settings, seeds) -> native managers of eight games, and random play in the first one."""
    made = []

    def make(env_id, settings, *seeds, **changes):
        if env_id.startswith("mpe2/"):
            pytest.importorskip("mpe2", reason="needs the extra 'mpe'")
        cfg = {"env_id": env_id, "backend": "native", **settings, **changes}
        managers = [make_env_manager(cfg, 8, seed) for seed in seeds]
        made.extend(managers)
        managers[0].reset()
        return [*managers, RandomPlay(managers[0], describe_env(cfg))]

    yield make
    for manager in made:
        manager.close()


@pytest.mark.parametrize("env_id", SINGLE)
def test_the_vector_version_plays_as_single_environments_do(env_id, played):
    manager, play = played(env_id, SINGLE[env_id], 0)
    vector = manager._source._env
    singles = [gymnasium.make(env_id, **SINGLE[env_id].get("env_kwargs", {})).unwrapped for _ in range(8)]
    for single in singles:
        single.reset(seed=0)
    ends = 0
    for _ in range(200):
        for row, single in enumerate(singles):
            for name in vector.native_state:
                getattr(single._games, name)[:] = getattr(vector, name)[row]
        action = play.action()
        step = play.step(action)
        for row, single in enumerate(singles):
            obs, reward, terminated, _, info = single.step(int(action[row]))
            assert (step.reward[row], step.terminated[row]) == (np.float32(reward), terminated)
            shown = obs_trees.named(step.next_obs)
            if "RepeatPrevious" not in env_id:
                # Whose symbols are drawn in each step.
                assert np.array_equal(shown["observation" if "observation" in shown else ""][row], obs)
            for name, value in info.items():
                told = shown["action_mask"] if name == "action_mask" else step.info[name]
                assert np.array_equal(told[row], value)
        ends += int((step.terminated | step.truncated).sum())
    assert ends > 8


@pytest.mark.parametrize("env_id", RESUMED)
def test_running_games_resume_exactly(env_id, played):
    first, second, play = played(env_id, RESUMED[env_id], 0, 1)
    for _ in range(7):
        play.step()
    second.load_state_dict(first.state_dict())
    assert second.resume_guarantee == "exact"
    for _ in range(60):
        action = play.action()
        one, other = play.step(action), second.step(action)
        for (path, mine), (_, theirs) in zip(obs_trees.leaves(one.obs), obs_trees.leaves(other.obs), strict=True):
            assert np.array_equal(mine, theirs), path
        assert np.array_equal(one.reward, other.reward)
        assert one.episodes == other.episodes


# BitFlip


def test_an_action_flips_its_bit_and_the_goal_ends_the_episode():
    flips = gymnasium.make("minding/BitFlip-v0", bits=5)
    for seed in range(20):
        obs, _ = flips.reset(seed=seed)
        wrong = np.flatnonzero(obs["observation"] != obs["desired_goal"])
        assert len(wrong) > 0
        for k, bit in enumerate(wrong):
            before = obs["achieved_goal"].copy()
            obs, reward, terminated, truncated, _ = flips.step(bit)
            assert np.flatnonzero(before != obs["achieved_goal"]).tolist() == [bit]
            last = k == len(wrong) - 1
            assert (reward, terminated) == (0.0 if last else -1.0, last)
            assert truncated == (k == 4)


# PointReach


def test_a_force_moves_the_point_as_the_formula_says():
    point = gymnasium.make("minding/PointReach-v0")
    obs, _ = point.reset(seed=0)
    place, velocity = obs["achieved_goal"].astype(float), np.zeros(2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        velocity = 0.7 * velocity + 0.03 * action
        place = place + velocity
        assert np.abs(place).max() < 1
        obs, *_ = point.step(action)
        np.testing.assert_allclose(obs["achieved_goal"], place, atol=1e-6)
        np.testing.assert_allclose(obs["observation"], [*place, *velocity / 0.1], atol=1e-5)


def test_a_wall_stops_the_point_in_its_direction_only():
    point = gymnasium.make("minding/PointReach-v0")
    point.reset(seed=0)
    for _ in range(40):
        obs, *_ = point.step(np.float32([1.0, 0.1]))
    assert obs["observation"][0] == 1.0
    assert obs["observation"][2] == 0.0
    np.testing.assert_allclose(obs["observation"][3], 0.1, atol=1e-5)


def test_start_and_goal_are_apart():
    point = gymnasium.make("minding/PointReach-v0")
    for seed in range(200):
        obs, _ = point.reset(seed=seed)
        assert not point.unwrapped.compute_terminated(obs["achieved_goal"], obs["desired_goal"], {})


# PixelCatch


def column(image, value):
    return int(np.argwhere(image[0] == value)[:, 1].min()) // 3


def test_images_are_channel_first_bytes_with_ball_and_paddle():
    catch = gymnasium.make("minding/PixelCatch-v0")
    obs, _ = catch.reset(seed=0)
    assert obs.shape == (1, 21, 21)
    assert obs.dtype == np.uint8
    assert (obs == 255).sum() == 9
    assert (obs == 128).sum() == 9
    assert column(obs, 128) == 3


def test_the_paddle_stops_at_the_walls():
    catch = gymnasium.make("minding/PixelCatch-v0")
    catch.reset(seed=0)
    images = [catch.step(0)[0] for _ in range(5)]
    assert column(images[-1], 128) == 0


# DeepSea


SIZE = 4


def make_sea(**kwargs):
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
    env = make_sea(mapping_seed=mapping_seed)
    assert descend(env, [1, 1, 1, 1]) == (pytest.approx([-0.0025, -0.0025, -0.0025, 0.9975]), [0, 1, 2, 3])
    assert descend(env, [1, 1, 1, 0]) == (pytest.approx([-0.0025, -0.0025, -0.0025, 0.0]), [0, 1, 2, 3])
    assert descend(env, [0, 1, 1, 1]) == (pytest.approx([0.0, -0.0025, -0.0025, -0.0025]), [0, 0, 1, 2])
    assert descend(env, [0, 0, 0, 0]) == (pytest.approx([0.0, 0.0, 0.0, 0.0]), [0, 0, 0, 0])


# RepeatPrevious


DELAY, SYMBOLS, ANSWERS = 4, 4, 32
STEPS = DELAY + ANSWERS


def repeat(symbols, policy, seed):
    """Return and length of an episode; `policy` takes the symbols so far."""
    seen, total, over = [int(symbols.reset(seed=seed)[0].argmax())], 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = symbols.step(policy(seen))
        total, over = total + reward, terminated or truncated
        assert obs.tolist() == [float(k == obs.argmax()) for k in range(SYMBOLS)]
        seen.append(int(obs.argmax()))
    return total, len(seen) - 1


def test_who_names_the_symbol_of_four_steps_before_earns_1():
    symbols = gymnasium.make("minding/RepeatPrevious-v0")
    for seed in range(5):
        total, steps = repeat(symbols, lambda seen: seen[max(0, len(seen) - 1 - DELAY)], seed)
        assert (total, steps) == (pytest.approx(1.0), STEPS)
        # One step too early, or too late, is as good as guessing.
        for wrong in (DELAY - 1, DELAY + 1):
            assert repeat(symbols, lambda seen, k=wrong: seen[max(0, len(seen) - 1 - k)], seed)[0] < 0.7


# TMaze


LENGTH = 10


def walk(maze, policy, seed):
    """Return and length of an episode; `policy` takes the observations so far."""
    seen, total, over = [tuple(maze.reset(seed=seed)[0].astype(int))], 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = maze.step(policy(seen))
        total, over = total + reward, terminated or truncated
        seen.append(tuple(obs.astype(int)))
    return total, len(seen) - 1


CELLS = {"north": (1, 0, 0, 0), "south": (0, 1, 0, 0), "corridor": (0, 0, 1, 0), "junction": (0, 0, 0, 1)}


def remembering(seen):
    return EAST if seen[-1] != CELLS["junction"] else NORTH if seen[0] == CELLS["north"] else SOUTH


def test_the_first_cell_alone_shows_the_goal():
    maze = gymnasium.make("minding/TMaze-v0")
    sides = set()
    for seed in range(20):
        obs, _ = maze.reset(seed=seed)
        sides.add(tuple(obs.astype(int)))
        for cell in ["corridor"] * (LENGTH - 1) + ["junction"]:
            obs, reward, terminated, _, _ = maze.step(EAST)
            assert (tuple(obs.astype(int)), reward, terminated) == (CELLS[cell], 0.0, False)
    assert sides == {CELLS["north"], CELLS["south"]}


def test_the_other_side_earns_nothing_and_walls_cost():
    maze = gymnasium.make("minding/TMaze-v0")

    def turned(seen):
        return {NORTH: SOUTH, SOUTH: NORTH}.get(remembering(seen), EAST)

    assert walk(maze, turned, 0) == (0.0, LENGTH + 1)
    maze.reset(seed=0)
    steps = [WEST, NORTH, SOUTH, EAST, NORTH, WEST, *[EAST] * LENGTH, EAST]
    rewards = [maze.step(action)[1] for action in steps]
    assert rewards == [-0.025, -0.025, -0.025, 0.0, -0.025, 0.0, *[0.0] * LENGTH, -0.025]
    truncated = [maze.step(WEST)[3] for _ in range(100 - len(steps))]
    assert truncated == [False] * (len(truncated) - 1) + [True]


# MaskedGrid


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


def test_a_picture_shows_the_walker_and_visited_cells():
    env = gymnasium.make("minding/MaskedGrid-v0", side=2, render_mode="rgb_array")
    env.reset(seed=0)
    games = env.unwrapped._games
    games.position[:], games.visited[:] = 3, [True, False, False, True]
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((80, 80, 3), np.uint8)
    corners = [tuple(picture[y, x]) for y in (20, 60) for x in (20, 60)]
    assert corners == [(70, 110, 160), (235, 235, 235), (235, 235, 235), (240, 140, 40)]
    assert gymnasium.make("minding/MaskedGrid-v0").unwrapped.render() is None
