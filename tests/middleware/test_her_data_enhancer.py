"""Hindsight: which goals transitions are pushed with, and their rewards and ends."""

import copy

import numpy as np
import pytest

from minding.engine.chain.context import OnlineRLContext
from minding.engine.data import trees
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ShapeError
from minding.envs.games.bit_flip import BitFlip
from minding.middleware import her_data_enhancer

STEPS = 4


class Pushed:
    """Keeps what is pushed."""

    def __init__(self):
        self.batches = []

    def push(self, transitions):
        self.batches.append({name: np.array(values) for name, values in transitions.items()})


def rollout(valid=None):
    """One environment: an episode of two steps ends at a time limit, and another goes on to the rollout's end.

    What is achieved is a number in three bits: 0 -> 1 -> 2, then 3 -> 4 -> 5. The goal is 7.
    """
    achieved = bits([0, 1, 3, 4])[:, None]
    obs = {"observation": achieved, "achieved_goal": achieved, "desired_goal": bits([7] * STEPS)[:, None]}
    following = {"observation": bits([5]), "achieved_goal": bits([5]), "desired_goal": bits([7])}
    final = {"observation": bits([2]), "achieved_goal": bits([2]), "desired_goal": bits([7])}
    none, truncated = np.zeros((STEPS, 1), bool), np.zeros((STEPS, 1), bool)
    truncated[1] = True
    return Rollout(
        *map(trees.unflatten, (obs, following, final)),
        ends=np.array([[1, 0]]),
        action=np.arange(STEPS)[:, None],
        reward=np.full((STEPS, 1), -1.0, np.float32),
        terminated=none,
        truncated=truncated,
        valid=valid,
        record={},
    )


def bits(numbers):
    return (np.asarray(numbers)[:, None] >> np.arange(3) & 1).astype(np.float32)


def numbers(rows):
    return (rows @ [1, 2, 4]).astype(int).tolist()


@pytest.fixture
def cfg(counting_config):
    return counting_config("dqn")


def enhanced(cfg, given, k=30):
    buffer = Pushed()
    middleware = her_data_enhancer(cfg, buffer, BitFlip(3), k=k)
    middleware(OnlineRLContext(trajectories=given))
    return buffer.batches, middleware


def test_goals_are_what_was_reached_at_this_or_a_later_step_of_the_same_trajectory(cfg):
    batches, _ = enhanced(cfg, rollout())
    assert len(batches) == 30
    goals = np.array([numbers(batch["obs.desired_goal"]) for batch in batches])
    assert [set(column) for column in goals.T] == [{1, 2}, {2}, {4, 5}, {5}]
    for batch in batches:
        np.testing.assert_array_equal(batch["obs.desired_goal"], batch["next_obs.desired_goal"])


def test_rewards_and_ends_are_those_of_the_goal_and_nothing_else_changes(cfg):
    batches, _ = enhanced(cfg, rollout())
    for batch in batches:
        reached = numbers(batch["next_obs.achieved_goal"])
        assert reached == [1, 2, 4, 5]
        hit = np.array(numbers(batch["obs.desired_goal"])) == reached
        assert batch["terminated"].tolist() == hit.tolist()
        assert batch["reward"].tolist() == (hit - 1.0).tolist()
        assert batch["reward"].dtype == np.float32
        assert batch["action"].tolist() == [0, 1, 2, 3]
        assert numbers(batch["obs.observation"]) == [0, 1, 3, 4]


def test_rows_of_resets_are_left_out(cfg):
    valid = np.array([[True], [True], [False], [True]])
    batches, _ = enhanced(cfg, rollout(valid))
    assert {tuple(batch["action"]) for batch in batches} == {(0, 1, 3)}
    assert {numbers(batch["obs.desired_goal"])[2] for batch in batches} == {5}


def test_it_continues_exactly_from_its_state(cfg):
    _, middleware = enhanced(cfg, rollout(), k=2)
    other = her_data_enhancer(cfg, Pushed(), BitFlip(3), k=2)
    other.load_state_dict(copy.deepcopy(middleware.state_dict()))
    for each in (middleware, other):
        each(OnlineRLContext(trajectories=rollout()))
    mine, theirs = ([batch["obs.desired_goal"] for batch in each._buffer.batches[-2:]] for each in (middleware, other))
    np.testing.assert_array_equal(mine, theirs)


def test_what_has_no_goals_is_refused(cfg, counting_config):
    plain = rollout()
    plain.obs = plain.last_obs = plain.final_obs = np.zeros((STEPS, 1, 3), np.float32)
    plain.last_obs, plain.final_obs = np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float32)
    with pytest.raises(ShapeError, match="the observation has no entry 'achieved_goal'"):
        enhanced(cfg, plain)
    middleware = her_data_enhancer(counting_config("dqn", **{"policy.learn.nstep": 3}), Pushed(), object())
    nstep, rules = middleware.requirements()
    assert nstep == "policy.learn.nstep=3 sums rewards of one goal: use 1"
    assert "the object has no compute_reward and no compute_terminated: give it an environment with Gymna" in rules
