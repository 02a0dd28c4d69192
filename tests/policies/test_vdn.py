"""VDN: one update on whole episodes against NumPy, and the game that it cannot solve."""

import numpy as np
import pytest
from fakes import discrete
from team_values import (
    LEARNS,
    SIGNATURES,
    SMALL,
    SPACE,
    check_padding,
    check_update,
    disturbed,
    make_batches,
    make_policy,
    matrix_game,
)

FORGETS = {"policy.model.memory": "none"}
CONTRACT = {"vdn": (SPACE, discrete(3), {**SMALL, **FORGETS, "policy.learn.target.freq": 4})}
# Its state is that of IDQN, and a part of that of QMIX, which are resumed.
RESUMES = {}
ALTERNATIVES = ("policy.learn.target.kind=soft",)
__all__ = ["LEARNS", "SIGNATURES"]


@pytest.fixture(scope="module")
def built(tiny_config):
    return make_policy(
        tiny_config,
        "vdn",
        **FORGETS,
        **{"policy.learn.grad_norm": 0.0, "policy.learn.gamma": 0.9, "policy.learn.double": False},
    )


@pytest.fixture(scope="module")
def batches(built):
    return make_batches(built)


@pytest.fixture
def policy(built):
    yield from disturbed(built)


def errors(own, fixed, episode):
    value, following = (episode.there * episode.done).sum(1), (episode.there_then * episode.best).sum(1)
    return value - (episode.reward + episode.decay * following), np.ones(episode.length)


def test_the_update_computes_the_loss_of_its_formula_and_its_gradient(policy, batches):
    check_update(policy, batches, errors)


@pytest.mark.slow
def test_places_behind_the_end_of_an_episode_change_no_bit_of_the_loss(policy, batches):
    check_padding(policy, batches)


@pytest.mark.slow
def test_the_two_step_game_is_not_solved(tmp_path):
    # Its best fit of 0, 1, 1 and 8 is 6.5 where both choose 1: it goes where 7 is.
    assert matrix_game("vdn", tmp_path) == 7.0
