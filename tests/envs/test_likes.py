"""Stand-ins of environments that people bring: each is fit as it installs, however it is stepped."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from likes import Flappy, Parking, Stocks, Tetris

from minding.engine.data import obs_trees
from minding.envs import VectorEnvManager, check_env, describe_env, make_env_manager

WARNED = {
    Parking: ["share an object"],
    Flappy: ["outside the observation space"],
    Tetris: ["board (24, 18) uint8 is taken as", "mask (24, 18) uint8 is taken as", "share an object"],
    Stocks: ["numbers that are far from 1"],
}


@pytest.mark.parametrize("world", WARNED)
def test_it_is_fit_and_its_habits_are_told(world):
    findings = check_env({}, 300, env_fn=world)
    assert not [found.text for found in findings if found.level == "error"]
    assert any("can be resumed exactly" in found.text for found in findings)
    warned = [found.text for found in findings if found.level == "warn" and "steps/s" not in found.text]
    assert len(warned) == len(WARNED[world])
    for word in WARNED[world]:
        assert any(word in text for text in warned), word


def actions(world, number):
    rng = np.random.default_rng(number)
    action = describe_env({}, env_fn=world)["action"]
    if action["kind"] == "box":
        return rng.uniform(-1, 1, (number, 2, *action["shape"])).astype(np.float32)
    return rng.integers(action["n"], size=(number, 2))


@pytest.mark.parametrize("world", WARNED)
def test_transitions_are_chains_of_true_successors(world):
    managers = [
        make_env_manager({}, 2, 0, env_fn=world),
        VectorEnvManager(SyncVectorEnv([world] * 2, autoreset_mode=AutoresetMode.SAME_STEP)),
    ]
    for manager in managers:
        before, ends = manager.reset(), 0
        for action in actions(world, 500):
            step = manager.step(action)
            over = step.terminated | step.truncated
            ends += over.sum()
            for (_, now), (_, successor) in zip(obs_trees.leaves(step.obs), obs_trees.leaves(step.next_obs)):
                assert np.array_equal(now[~over], successor[~over])
                assert successor.shape == now.shape
            moved = [
                (old != new).any()
                for (_, old), (_, new) in zip(obs_trees.leaves(before), obs_trees.leaves(step.next_obs))
            ]
            assert any(moved)
            before = step.obs
        assert ends >= 2
        assert len(step.episodes) == over.sum()
        manager.close()


def test_declared_numbers_travel_and_texts_are_refused():
    manager = make_env_manager({"info_keys": ["is_success", "action"]}, 2, 0, env_fn=Parking)
    manager.reset()
    step = manager.step(np.full((2, 2), 0.5, np.float32))
    assert step.info["action"].tolist() == [[0.5, 0.5]] * 2
    assert step.info["is_success"].dtype == bool
    with pytest.raises(Exception, match="gives 'Long' under 'position'; expected a number"):
        make_env_manager({"info_keys": ["position"]}, 1, 0, env_fn=Stocks)
