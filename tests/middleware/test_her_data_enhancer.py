"""Hindsight: which goals transitions are pushed with, and their rewards and ends, however long rollouts are."""

import dataclasses
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import Stream

from minding.engine.buffers import BaseBuffer
from minding.engine.chain.context import OnlineRLContext
from minding.engine.data import obs_trees
from minding.engine.data.rollout import Rollout
from minding.envs.games.goal_games import BitFlip
from minding.middleware import her_data_enhancer

STEPS = 4
FIELDS = (*(f"{when}.{what}" for when in ("obs", "next_obs") for what in ("observation", "achieved_goal")),)


class Pushed(BaseBuffer):
    """Keeps what is pushed."""

    def __init__(self, capacity=1000):
        self.capacity, self.batches = capacity, []
        self.fields = dict.fromkeys(
            (*FIELDS, "obs.desired_goal", "next_obs.desired_goal", "action", "reward", "terminated", "discount")
        )

    def store(self, transitions):
        assert len(transitions["reward"]) <= self.capacity
        self.batches.append({name: np.array(values) for name, values in transitions.items()})

    def rows(self):
        return {name: np.concatenate([batch[name] for batch in self.batches]) for name in self.batches[0]}


def rollout(valid=None, truncated=(1, 3), **parts):
    """One environment: an episode of two steps ends at a time limit, and another with the rollout, unless `truncated`
    says otherwise.

    What is achieved is a number in three bits: 0 -> 1 -> 2, then 3 -> 4 -> 5. The goal is 7.
    """
    achieved = bits([0, 1, 3, 4])[:, None]
    obs = {"observation": achieved, "achieved_goal": achieved, "desired_goal": bits([7] * STEPS)[:, None]}
    last = bits([[2, 5][t // 2] for t in truncated])
    ends = np.zeros((STEPS, 1), bool)
    ends[list(truncated)] = True
    following = {"observation": bits([5]), "achieved_goal": bits([5]), "desired_goal": bits([7])}
    final = {"observation": last, "achieved_goal": last, "desired_goal": bits([7] * len(last))}
    return Rollout(
        *map(obs_trees.unflatten, (obs, following, final)),
        ends=np.array([[t, 0] for t in truncated]).reshape(-1, 2),
        action=np.arange(STEPS)[:, None],
        reward=np.full((STEPS, 1), -1.0, np.float32),
        terminated=np.zeros((STEPS, 1), bool),
        truncated=ends,
        valid=valid,
        record=parts.pop("record", {}),
        **parts,
    )


def bits(numbers):
    return (np.asarray(numbers, int)[:, None] >> np.arange(3) & 1).astype(np.float32)


def numbers(rows):
    return (rows @ [1, 2, 4]).astype(int).tolist()


@pytest.fixture(scope="module")
def config_of():
    from fakes import space_of, tiny_config

    def make(k=30, env=None, **overrides):
        cfg = tiny_config("dqn", space_of(3), **{"policy.other.hindsight.k": k, **overrides})
        cfg.env.update(env or {})
        return cfg

    return make


def enhanced(cfg, *given, env=None, capacity=1000):
    buffer = Pushed(capacity)
    middleware = her_data_enhancer(cfg, buffer, env or BitFlip(3))
    assert middleware.requirements() == []
    for each in given:
        middleware(OnlineRLContext(trajectories=each))
    return buffer, middleware


def goals_of(rows):
    """For each action, the goals with which it was pushed."""
    goals = numbers(rows["obs.desired_goal"])
    np.testing.assert_array_equal(rows["obs.desired_goal"], rows["next_obs.desired_goal"])
    return {action: {g for a, g in zip(rows["action"], goals, strict=True) if a == action} for action in rows["action"]}


def test_goals_are_reached_at_this_or_a_later_step(config_of):
    buffer, _ = enhanced(config_of(), rollout())
    assert [len(batch["reward"]) for batch in buffer.batches] == [60, 60]
    assert goals_of(buffer.rows()) == {0: {1, 2}, 1: {2}, 2: {4, 5}, 3: {5}}


def test_rows_of_resets_are_left_out_and_end_what_was_given_up(config_of):
    valid = np.array([[True], [True], [False], [True]])
    buffer, _ = enhanced(config_of(), rollout(valid))
    assert goals_of(buffer.rows()) == {0: {1, 2}, 1: {2}, 3: {5}}
    buffer, _ = enhanced(config_of(), rollout(valid, truncated=(3,)))
    # A fault: what was reached before it is in the row itself, the observation after it is that of a reset.
    assert goals_of(buffer.rows()) == {0: {1, 3}, 1: {3}, 3: {5}}


# Episodes over many rollouts


class Plane:
    """A goal is (environment, time); it is reached by the step that came there."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -np.abs(achieved_goal - desired_goal).sum(-1) - info["effort"]

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(-1)


def with_goals(stream, start, stop):
    """A rollout of a stream whose observations are achieved goals; the desired ones are far away."""

    def goal(obs):
        return None if obs is None else obs_trees.unflatten({"achieved_goal": obs, "desired_goal": obs * 0 - 9})

    part = stream.rollout(start, stop)
    seen = {name: goal(getattr(part, name)) for name in ("obs", "last_obs", "final_obs")}
    effort = np.arange(start, stop, dtype=np.float32)[:, None] * 0.125 + np.arange(stream.envs, dtype=np.float32)
    return dataclasses.replace(part, **seen, info={"effort": effort})


def episodes_of(stream):
    """Those that are over: lists of (environment, time, successor's time)."""
    over, found = stream.terminated | stream.truncated, []
    for env in range(stream.envs):
        rows = []
        for t in range(stream.steps):
            if not stream.valid[t, env]:
                found, rows = [*found, rows], []
                continue
            rows.append((env, t, t + 0.5 if over[t, env] else t + 1))
            if over[t, env]:
                found, rows = [*found, rows], []
    return [rows for rows in found if rows]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    resets=st.booleans(),
    saved=st.booleans(),
)
def test_any_partition_pushes_the_same_copies(config_of, seed, lengths, resets, saved):
    stream, cfg = Stream(seed, sum(lengths), resets=resets), config_of(k=3)
    whole, _ = enhanced(cfg, with_goals(stream, 0, stream.steps), env=Plane())
    buffer, middleware = enhanced(cfg, env=Plane())
    start = 0
    for length in lengths:
        middleware(OnlineRLContext(trajectories=with_goals(stream, start, start + length)))
        start += length
        if saved:
            state, middleware = middleware.state_dict(), her_data_enhancer(cfg, buffer, Plane())
            middleware.load_state_dict(state)
    assert len(buffer.batches) == len(whole.batches) == len(episodes_of(stream))
    if not whole.batches:
        return
    rows, expected = buffer.rows(), whole.rows()
    assert rows.keys() == expected.keys()
    for name, values in rows.items():
        assert values.tobytes() == expected[name].tobytes(), name
    reached = {}
    for episode in episodes_of(stream):
        for place, (env, t, _) in enumerate(episode):
            reached[env, t] = [(env, then) for _, _, then in episode[place:]]
    own = [(int(env), int(t)) for env, t in rows["obs.achieved_goal"]]
    assert sorted(own) == sorted([*reached] * 3)
    for k, (env, t) in enumerate(own):
        goal, at = tuple(rows["obs.desired_goal"][k]), reached[env, t][0]
        assert goal in reached[env, t]
        assert tuple(rows["next_obs.achieved_goal"][k]) == at
        assert rows["reward"][k] == pytest.approx(-(goal[1] - at[1]) - (t * 0.125 + env))
        assert rows["terminated"][k] == (goal == at)


def test_collectors_that_take_turns_keep_their_episodes_apart(config_of):
    streams = [Stream(seed, 24) for seed in (1, 2)]
    alone = [enhanced(config_of(k=1), with_goals(stream, 0, 24), env=Plane())[0].rows() for stream in streams]
    buffer, middleware = enhanced(config_of(k=1), env=Plane())
    for start in range(0, 24, 4):
        for number, stream in enumerate(streams):
            part = with_goals(stream, start, start + 4)
            part.collector = number
            middleware(OnlineRLContext(trajectories=part))
    rows, expected = buffer.rows(), [np.concatenate([x["obs.achieved_goal"] for x in alone])]
    own = rows["obs.achieved_goal"]
    assert sorted(map(tuple, own)) == sorted(map(tuple, expected[0]))


def test_an_abandoned_episode_ends_with_what_was_reached(config_of):
    running = rollout(truncated=(1,))
    fresh = np.zeros((STEPS, 1), bool)
    fresh[0] = True
    buffer, _ = enhanced(config_of(), running, rollout(fresh=fresh))
    assert [len(batch["reward"]) for batch in buffer.batches] == [60, 60, 60, 60]
    assert {goals[2] and frozenset(goals[2]) for goals in [goals_of(buffer.batches[1])]} == {frozenset({4, 5})}


def test_an_episode_larger_than_the_buffer_comes_in_parts(config_of):
    endless = rollout(truncated=())
    endless.final_obs = None
    # Three rows and their three copies each.
    buffer, _ = enhanced(config_of(k=3), *[endless] * 3, capacity=12)
    assert [len(batch["reward"]) for batch in buffer.batches] == [9, 9, 9, 9]
    assert buffer.batches[0]["action"].tolist() == [0, 1, 2] * 3


# Rules of environments


class Effort:
    """Written for one row; its reward depends on what a step cost."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return (0.0 if np.array_equal(achieved_goal, desired_goal) else -1.0) - info["effort"]


class Parking(Effort):
    """As those that have a reward alone, with an argument more."""

    def compute_reward(self, achieved_goal, desired_goal, info, p=0.5):
        return -np.power(np.abs(achieved_goal - desired_goal) @ np.array([1.0, 0.3, 0.0]), p)


def test_without_compute_terminated_a_copy_ends_as_recorded(config_of):
    given = rollout()
    given.terminated, given.truncated = given.truncated, given.terminated
    buffer, _ = enhanced(config_of(), given, env=Parking())
    rows = buffer.rows()
    assert rows["terminated"].tolist() == [t in (1, 3) for t in rows["action"]]
    away = np.abs(rows["next_obs.achieved_goal"] - rows["obs.desired_goal"]).astype(np.float64)
    np.testing.assert_allclose(rows["reward"], -np.sqrt(away @ [1.0, 0.3, 0.0]), rtol=1e-6)


def test_rewards_are_clipped_as_those_that_were_collected(config_of):
    effort = np.full((STEPS, 1), 5.0, np.float32)
    given = rollout(info={"effort": effort})
    buffer, _ = enhanced(config_of(env={"reward_clip": 5.5}), given, env=Effort())
    assert set(buffer.rows()["reward"].tolist()) == {-5.0, -5.5}


def test_rewards_that_are_not_those_of_the_rule_are_named_once(config_of, caplog):
    with caplog.at_level(logging.WARNING, "minding.envs"):
        enhanced(config_of(), rollout())
        assert caplog.messages == []
        given = rollout()
        given.reward = given.reward * 0.5
        enhanced(config_of(), given, given)
    (message,) = caplog.messages
    assert message.startswith(
        "in 2 of 2 steps of the first episode, first in step 1, the environment gave another reward (-0.5) "
        "than its compute_reward (-1)"
    )


def divided(tree):
    """The observations with goals in a Dict of two parts, one of them in a Dict of its own."""
    leaves = obs_trees.named(tree)
    goals = {entry: leaves.pop(entry) for entry in ("achieved_goal", "desired_goal")}
    for entry, bits in goals.items():
        leaves |= {f"{entry}.first": bits[..., :1], f"{entry}.rest.both": bits[..., 1:]}
    return obs_trees.unflatten(leaves)


class Divided(BitFlip):
    """Takes goals as `divided` makes them, one row at a time."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        assert list(achieved_goal) == list(desired_goal) == ["first", "rest"]
        achieved, desired = (
            np.concatenate([goal["first"], goal["rest"]["both"]]) for goal in (achieved_goal, desired_goal)
        )
        return super().compute_reward(achieved, desired, info)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return self.compute_reward(achieved_goal, desired_goal, info) == 0


def test_goals_in_a_dict_are_replaced_as_those_in_an_array(config_of):
    plain, nested = rollout(), rollout()
    nested.obs, nested.last_obs, nested.final_obs = map(divided, (nested.obs, nested.last_obs, nested.final_obs))
    rows = enhanced(config_of(), plain)[0].rows()
    buffer = Pushed()
    goals = [f"{prefix}.{entry}_goal.{part}" for prefix in ("obs", "next_obs") for entry in ("achieved", "desired")
             for part in ("first", "rest.both")]  # fmt: skip
    buffer.fields = dict.fromkeys([*(name for name in buffer.fields if "goal" not in name), *goals])
    enhancer = her_data_enhancer(config_of(), buffer, Divided(3))
    enhancer(OnlineRLContext(trajectories=nested))
    found = buffer.rows()
    for name in ("action", "reward", "terminated", "obs.observation"):
        np.testing.assert_array_equal(found[name], rows[name])
    for goal in ("obs.desired_goal", "next_obs.desired_goal", "next_obs.achieved_goal"):
        joined = np.concatenate([found[f"{goal}.first"], found[f"{goal}.rest.both"]], axis=1)
        np.testing.assert_array_equal(joined, rows[goal])
