"""Observations in memory."""

import numpy as np
import pytest
from gymnasium import spaces

from minding.engine.data import obs_trees
from minding.engine.errors import ShapeError, SpaceError
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


def test_lists_numbers_and_wider_floats_are_converted():
    layout = ObsLayout(spaces.Box(0, 9, (2,), np.float32))
    arrays = layout.allocate(3)
    for row, obs in enumerate(([1, 2], np.array([3.0, 4.0]), np.array([5, 6], np.uint8))):
        layout.write(arrays, row, obs)
    assert arrays[0].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_what_does_not_fit_is_refused_with_the_place():
    layout = ObsLayout(spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Dict(c=spaces.Discrete(2))))
    arrays = layout.allocate(1)
    with pytest.raises(ShapeError, match=r"observation 'a': expected shape \(2,\), got \(3,\)"):
        layout.write(arrays, 0, {"a": np.zeros(3), "b": {"c": 1}})
    with pytest.raises(ShapeError, match=r"has no entry 'c' \(space: observation 'b.c'\)"):
        layout.write(arrays, 0, {"a": np.zeros(2), "b": {}})
    with pytest.raises(ShapeError, match=r"observation 'b\.c': expected dtype int64, got float64"):
        layout.write(arrays, 0, {"a": np.zeros(2), "b": {"c": 0.5}})


def test_spaces_without_an_array_form_are_refused():
    with pytest.raises(SpaceError, match="Text"):
        ObsLayout(spaces.Dict(a=spaces.Text(5)))
    with pytest.raises(SpaceError, match="without dots"):
        ObsLayout(spaces.Dict({"a.b": spaces.Discrete(2)}))
    with pytest.raises(SpaceError, match="no entries"):
        ObsLayout(spaces.Dict())
