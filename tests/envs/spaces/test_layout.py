"""Observations in memory."""

import numpy as np
from gymnasium import spaces

from minding.engine.data import obs_trees
from minding.envs.spaces.layout import ObsLayout


def test_leaves_follow_the_sorted_key_order_of_trees():
    space = spaces.Tuple([spaces.Discrete(2)] * 11)
    layout = ObsLayout(space)
    obs = layout.unflatten(layout.allocate(3))
    assert [leaf.path for leaf in layout.leaves] == [path for path, _ in obs_trees.leaves(obs)]
    assert [leaf.path for leaf in layout.leaves][:4] == ["0", "1", "10", "2"]


def test_dtypes_that_are_handed_out():
    cases = {
        np.float32: spaces.Box(0, 1, (2,), np.float64),
        np.uint8: spaces.Box(0, 255, (2,), np.uint8),
        np.int64: spaces.Discrete(3),
        np.int8: spaces.MultiBinary(3),
    }
    assert all(ObsLayout(space).leaves[0].dtype == dtype for dtype, space in cases.items())
    assert ObsLayout(spaces.MultiDiscrete([2, 3])).leaves[0].dtype == np.int64
