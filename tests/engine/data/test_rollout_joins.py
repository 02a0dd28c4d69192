"""Rollouts: true successors, trajectory ends, and shards that are joined to what they were cut from."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import GAMMA, Stream
from treevalue import FastTreeValue

from minding.engine.data import obs_trees
from minding.engine.data.returns import nstep
from minding.engine.data.rollout import Rollout, named_leaves
from minding.engine.data.rollout_joins import CannotJoin, join_shards, last_rows, side_by_side
from minding.engine.types import EpisodeEnd
from minding.middleware.data_pusher import sequence_columns, transitions
from minding.middleware.return_estimators import rows_with_advantages
from minding.middleware.trainer import sequences

BY_ENV = ("action", "reward", "terminated", "truncated", "valid", "bootstrap_row", "fresh", "ready")


def cut(rollout, envs):
    """The rollouts of so many environments each that lie side by side in one."""
    parts = []
    for start in range(0, rollout.shape[1], envs):
        own = slice(start, start + envs)
        mine = (rollout.ends[:, 1] >= start) & (rollout.ends[:, 1] < start + envs)
        columns = {name: getattr(rollout, name) for name in BY_ENV}
        any_ended = rollout.final_obs is not None and mine.any()
        parts.append(
            dataclasses.replace(
                rollout,
                **{name: None if column is None else column[:, own] for name, column in columns.items()},
                obs=obs_trees.tree_map(lambda x, own=own: x[:, own], rollout.obs),
                last_obs=obs_trees.tree_map(lambda x, own=own: x[own], rollout.last_obs),
                ends=rollout.ends[mine] - [0, start],
                final_obs=obs_trees.index(rollout.final_obs, mine) if any_ended else None,
                record={name: x[:, own] for name, x in rollout.record.items()},
                info={name: x[:, own] for name, x in rollout.info.items()},
                last_value=None if rollout.last_value is None else rollout.last_value[own],
                final_value=rollout.final_value[mine] if rollout.final_value is not None and any_ended else None,
            )
        )
    return parts


def same(one, other):
    for field in dataclasses.fields(Rollout):
        here, there = getattr(one, field.name), getattr(other, field.name)
        assert (here is None) == (there is None), field.name
        here, there = (
            dict(obs_trees.leaves(here)) if obs_trees.is_tree(here) else here,
            (dict(obs_trees.leaves(there)) if obs_trees.is_tree(there) else there),
        )
        np.testing.assert_equal(here, there, err_msg=field.name)


def of_stream(seed, steps, envs, *, agents=0, tree=False, memory=False, n=1):
    """A rollout with all that one can have."""
    rollout = Stream(seed, steps, envs, agents).rollout(0, steps)
    rng = np.random.default_rng(seed)
    shape = (*rollout.shape, *[agents] * bool(agents))
    rollout.record["value"] = rng.standard_normal(shape).astype(np.float32)
    rollout.last_value = rng.standard_normal(shape[1:]).astype(np.float32)
    rollout.info = {"speed": rng.standard_normal(rollout.shape)}
    if len(rollout.ends):
        rollout.final_value = rng.standard_normal((len(rollout.ends), *shape[2:])).astype(np.float32)
    if memory:
        rollout.record["memory"] = rng.standard_normal((*shape, 2)).astype(np.float32)
    if n > 1:
        reward, last, discount = nstep(rollout.reward, rollout.cut(), n=n, gamma=GAMMA)
        ready = rng.random(rollout.shape) < 0.8
        rollout = dataclasses.replace(rollout, reward=reward, bootstrap_row=last, ready=ready)
        rollout.record["discount"] = discount
    if tree:
        rollout.obs = FastTreeValue({"a": rollout.obs, "b": {"c": rollout.obs[..., 0]}})
        rollout.last_obs = FastTreeValue({"a": rollout.last_obs, "b": {"c": rollout.last_obs[..., 0]}})
        if rollout.final_obs is not None:
            rollout.final_obs = FastTreeValue({"a": rollout.final_obs, "b": {"c": rollout.final_obs[..., 0]}})
    return rollout


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 6),
    envs=st.integers(1, 3),
    shards=st.integers(2, 4),
    tree=st.booleans(),
    n=st.sampled_from([1, 3]),
)
def test_rollouts_side_by_side_are_the_one_they_were_cut_from(seed, steps, envs, shards, tree, n):
    whole = of_stream(seed, steps, envs * shards, tree=tree, n=n)
    parts = cut(whole, envs)
    joined = side_by_side(parts, envs)
    same(joined, whole)
    np.testing.assert_array_equal(joined.end_idx(), whole.end_idx())
    indices = join_shards("trajectory_end_idx", [part.end_idx() for part in parts], envs)
    np.testing.assert_array_equal(indices, whole.end_idx())
    # What a buffer takes is what it would take of the whole.
    for rows in (transitions, sequence_columns):
        np.testing.assert_equal(rows(joined), rows(whole))


def test_the_last_rows_begin_episodes_where_the_rollout_does():
    whole = of_stream(4, 6, 3)
    rows = last_rows(whole, 4)
    assert rows.shape == (4, 3)
    # The first row has none before it, whose end it could follow.
    assert rows.fresh.tolist() == [whole.begun()[2].tolist(), *whole.fresh[3:].tolist()]
    assert not whole.fresh[3:].any()
    whole.fresh[4, 1] = True
    assert last_rows(whole, 4).fresh[1:].tolist() == whole.fresh[3:].tolist()


def test_shards_that_say_nothing_of_their_rows_are_filled_in():
    parts = cut(of_stream(3, 4, 4, n=3), 2)
    parts[0] = dataclasses.replace(parts[0], valid=np.zeros((4, 2), bool), fresh=None)
    parts[1] = dataclasses.replace(parts[1], valid=None, ready=None)
    joined = side_by_side(parts, 2)
    assert joined.valid.tolist() == [[False, False, True, True]] * 4
    assert joined.ready[:, 2:].all()
    assert not joined.fresh[:, :2].any()


@pytest.mark.parametrize("agents", [0, 2])
def test_joined_train_data_have_the_sequences_of_the_whole(agents):
    whole = of_stream(5, 4, 6, agents=agents, memory=True)
    if agents:
        whole.action, whole.info = whole.action[:, :, None] + np.arange(2), {}
        ones = np.ones((4, 6, 2), bool)
        whole.obs = FastTreeValue({"own": whole.obs[:, :, None].repeat(2, 2), "alive": ones})
        whole.last_obs = FastTreeValue({"own": whole.last_obs[:, None].repeat(2, 1), "alive": ones[0]})
        final = whole.final_obs
        alive = np.ones((len(final), 2), bool)
        whole.final_obs = FastTreeValue({"own": final[:, None].repeat(2, 1), "alive": alive})
    learn = {"gamma": 0.9, "gae_lambda": 0.8}
    expected = rows_with_advantages(whole, **learn)
    joined = join_shards("train_data", [rows_with_advantages(part, **learn) for part in cut(whole, 2)], 2)
    count = 6 * (agents or 1)
    assert set(joined["sequence"]) == set(range(count))
    # Each sequence is the one of that number, row by row.
    here, there = sequences(joined), sequences(expected)
    assert joined.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(joined[name][here], values[there], err_msg=name)


def test_episodes_and_what_is_known_of_them_come_in_shard_order():
    stats = [[EpisodeEnd(1, 5.0, 3, {"won": 1.0})], [], [EpisodeEnd(0, 6.0, 4), EpisodeEnd(1, 7.0, 5)]]
    joined = join_shards("episode_stats", stats, 2)
    assert joined == [EpisodeEnd(1, 5.0, 3, {"won": 1.0}), EpisodeEnd(4, 6.0, 4), EpisodeEnd(5, 7.0, 5)]
    assert join_shards("episodes", [["a"], ["b", "c"], []], 2) == ["a", "b", "c"]


def test_what_is_alike_passes_and_nothing_else():
    kwargs = {"eps": 0.5, "mask": np.array([True, False]), "also": [1, (2, "x")]}
    copy = {"eps": 0.5, "mask": np.array([True, False]), "also": [1, (2, "x")]}
    assert join_shards("collect_kwargs", [kwargs, copy], 2) is kwargs
    for other in ({**copy, "eps": 0.4}, {**copy, "mask": np.array([True, True])}, {**copy, "also": [1]}, {"eps": 0.5}):
        with pytest.raises(CannotJoin):
            join_shards("collect_kwargs", [kwargs, other], 2)
    for name, value in (("train_data", {"x": 1.0}), ("episodes", None), ("episode_stats", ["end"])):
        with pytest.raises(CannotJoin):
            join_shards(name, [value, value], 2)


# True successors and trajectory ends


def rollout(obs, last_obs, ends=(), final_obs=None, truncated=()):
    """Three steps of two environments."""
    flags = np.zeros((2, 3, 2), bool)
    for t, n in ends:
        flags[1 if (t, n) in truncated else 0, t, n] = True
    zeros = np.zeros((3, 2), np.float32)
    return Rollout(
        obs=obs,
        last_obs=last_obs,
        final_obs=final_obs,
        ends=np.array(ends, np.int64).reshape(-1, 2),
        action=zeros,
        reward=zeros,
        terminated=flags[0],
        truncated=flags[1],
        valid=None,
        record={},
    )


OBS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def test_the_successor_is_the_next_row_or_the_final_observation():
    ended = rollout(OBS, np.array([7, 8], np.float32), [(0, 1), (2, 0)], np.array([40, 70], np.float32))
    assert ended.next_obs().tolist() == [[3, 40], [5, 6], [70, 8]]
    assert OBS.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert rollout(OBS, np.array([7, 8], np.float32)).next_obs().tolist() == [[3, 4], [5, 6], [7, 8]]
    cut = rollout(OBS, OBS[0], [(0, 1), (1, 0)], np.zeros(2, np.float32), truncated=[(1, 0)])
    assert cut.end_idx().tolist() == [1, 2, 4, 5]
    assert cut.terminated[-1].tolist() == [False, False]
    assert cut.shape == (3, 2)
    last, final = np.array([7, 8], np.float32), np.array([40], np.float32)
    tree = rollout(
        FastTreeValue({"a": OBS, "b": {"c": OBS + 10}}),
        FastTreeValue({"a": last, "b": {"c": last + 10}}),
        [(0, 1)],
        FastTreeValue({"a": final, "b": {"c": final + 10}}),
    )
    leaves = dict(named_leaves("next_obs", tree.next_obs()))
    assert list(leaves) == ["next_obs.a", "next_obs.b.c"]
    assert leaves["next_obs.a"].tolist() == [[3, 40], [5, 6], [7, 8]]
    assert leaves["next_obs.b.c"].tolist() == [[13, 50], [15, 16], [17, 18]]
