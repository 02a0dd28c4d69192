"""Predators of one run against the prey of another."""

import numpy as np
import pytest
from treevalue import FastTreeValue

from proofs import tag_crossplay


def test_the_last_agent_is_the_prey():
    ones, twos = (lambda obs, k=k: np.full((2, 4), k) for k in (1, 2))
    assert tag_crossplay.crossed(ones, twos)(None).tolist() == [[1, 1, 1, 2]] * 2


def test_random_play_is_legal():
    mask = np.tile(np.array([True, False, True, True, False]), (50, 4, 1))
    obs = FastTreeValue({"action_mask": mask, "alive": np.ones((50, 4), bool)})
    assert set(tag_crossplay.random_play(0)(obs).ravel()) == {0, 2, 3}


def test_touches_are_what_a_predator_earns():
    pytest.importorskip("mpe2")

    def act(obs):
        return np.zeros(obs.alive.shape, np.int64)

    # Who does not move is rarely where another one is.
    mean, error = tag_crossplay.touches(act, 8)
    assert 0.0 <= mean < 5.0
    assert error >= 0.0
