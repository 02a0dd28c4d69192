"""Rollouts: true successors and trajectory ends."""

import numpy as np
from treevalue import FastTreeValue

from minding.engine.data.rollout import Rollout, named_leaves


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


def test_the_successor_is_the_next_row_and_at_an_end_the_final_observation():
    ended = rollout(OBS, np.array([7, 8], np.float32), [(0, 1), (2, 0)], np.array([40, 70], np.float32))
    assert ended.next_obs().tolist() == [[3, 40], [5, 6], [70, 8]]
    assert OBS.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert rollout(OBS, np.array([7, 8], np.float32)).next_obs().tolist() == [[3, 4], [5, 6], [7, 8]]
    cut = rollout(OBS, OBS[0], [(0, 1), (1, 0)], np.zeros(2, np.float32), truncated=[(1, 0)])
    assert cut.end_idx().tolist() == [1, 2, 4, 5]
    assert cut.terminated[-1].tolist() == [False, False]
    assert cut.shape == (3, 2)


def test_successors_of_nested_observations_are_trees_of_the_same_keys():
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
