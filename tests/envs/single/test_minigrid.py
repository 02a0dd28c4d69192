"""MiniGrid, where the extra is installed: planes, missions, masks, memory tasks."""

import copy

import gymnasium
import numpy as np
import pytest

from minding.engine.errors import ConfigError
from minding.envs import check_env, describe_env
from minding.envs.single import minigrid as ours

minigrid = pytest.importorskip("minigrid", reason="needs the extra 'minigrid'")
DOORKEY = "MiniGrid-DoorKey-5x5-v0"
MASKED = [{"minigrid": {"mask": True}}]


def test_planes_hold_what_the_codes_say():
    image = np.zeros((7, 7, 3), np.uint8)
    image[2, 5] = (4, 3, 2)
    drawn = ours.planes(image)
    assert drawn.shape == (21, 7, 7)
    assert np.flatnonzero(drawn[:, 2, 5]).tolist() == [4, 11 + 3, 17 + 2]
    assert np.flatnonzero(drawn[:, 0, 0]).tolist() == [0, 11, 17]
    assert set(np.unique(drawn)) == {0, 255}


def test_the_planes_suffice_for_all_codes_of_the_package():
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

    assert max(OBJECT_TO_IDX.values()) < ours._SIZES[0]
    assert max(COLOR_TO_IDX.values()) < ours._SIZES[1]
    # The agent has four directions.
    assert max(3, *STATE_TO_IDX.values()) < ours._SIZES[2]


def state(core):
    cells = [None if cell is None else cell.encode() for cell in core.grid.grid]
    carried = None if core.carrying is None else core.carrying.encode()
    return tuple(core.agent_pos), core.agent_dir, cells, carried


@pytest.mark.parametrize("env_id", [DOORKEY, "MiniGrid-ObstructedMaze-1Dlhb-v0"])
def test_exactly_the_actions_that_change_something_are_legal(env_id):
    try:
        env = ours.MiniGrid(gymnasium.make(env_id), mask=True)
    except ConfigError:
        # Its rewards are its own, its rules are not.
        env = ours.MiniGrid(gymnasium.make(env_id))
    rng, seen = np.random.default_rng(0), np.zeros(7, bool)
    for seed in range(2):
        env.reset(seed=seed)
        for _ in range(40):
            core, legal = env.unwrapped, ours.effective(env.unwrapped).astype(bool)
            for action in range(7):
                tried = copy.deepcopy(core)
                tried.step(action)
                assert (state(tried) != state(core)) == legal[action], core.actions(action)
            seen |= legal
            *_, terminated, truncated, _ = env.step(rng.choice(np.flatnonzero(legal)))
            if terminated or truncated:
                break
    assert seen[:6].sum() >= 4


def test_missions_are_numbered_where_there_are_several():
    spaces = describe_env({"env_id": "MiniGrid-GoToDoor-5x5-v0", "wrappers": ["minigrid"]})["observation"]["spaces"]
    assert spaces["mission"] == {"kind": "discrete", "n": 6, "start": 0}
    assert spaces["image"]["shape"] == [21, 7, 7]
    env = ours.MiniGrid(gymnasium.make("MiniGrid-GoToDoor-5x5-v0"))
    numbers = {int(env.reset(seed=seed)[0]["mission"]) for seed in range(40)}
    assert numbers == set(range(6))


@pytest.mark.slow
def test_it_is_fit_for_training_and_resumes_exactly():
    found = check_env({"env_id": DOORKEY, "wrappers": MASKED}, steps=600)
    assert [each for each in found if each.level == "error"] == []
    texts = " ".join(each.text for each in found)
    assert "the action mask leaves" in texts
    assert "time limit 250" in texts
    assert "a running episode can be resumed exactly" in texts
