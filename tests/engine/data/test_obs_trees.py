"""Trees of arrays: plain arrays and nested FastTreeValues behave alike."""

import numpy as np
import pytest
from treevalue import FastTreeValue

from minding.engine.data import obs_trees
from minding.engine.errors import ShapeError


def nested():
    return FastTreeValue({"camera": np.array([[1, 2], [3, 4]]), "arm": {"position": np.array([5.0, 6.0])}})


def same(left, right):
    pairs = zip(obs_trees.leaves(left), obs_trees.leaves(right), strict=True)
    return all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in pairs)


def test_leaves_come_in_sorted_order_with_dotted_paths():
    assert [path for path, _ in obs_trees.leaves(nested())] == ["arm.position", "camera"]
    assert [path for path, _ in obs_trees.leaves(np.zeros(2))] == [""]
    assert same(obs_trees.unflatten(obs_trees.leaves(nested())), nested())
    plain = np.arange(3)
    assert obs_trees.unflatten(obs_trees.leaves(plain)) is plain


def test_map_over_one_tree_and_over_several_of_the_same_keys():
    doubled = obs_trees.tree_map(lambda a: a * 2, nested())
    assert doubled.arm.position.tolist() == [10.0, 12.0]
    total = obs_trees.tree_map(np.add, nested(), nested())
    assert total.camera.tolist() == [[2, 4], [6, 8]]
    assert obs_trees.tree_map(np.add, np.array([1, 2]), np.array([10, 20])).tolist() == [11, 22]
    with pytest.raises(ShapeError, match=r"\['arm', 'camera'\].*\['lidar'\]"):
        obs_trees.tree_map(np.add, nested(), FastTreeValue({"lidar": np.zeros(1)}))
    with pytest.raises(ShapeError, match="ndarray"):
        obs_trees.tree_map(np.add, nested(), np.zeros(1))


def test_stack_and_index_take_every_leaf():
    stacked = obs_trees.stack([nested(), nested(), nested()])
    assert stacked.camera.shape == (3, 2, 2)
    assert stacked.arm.position.tolist() == [[5.0, 6.0]] * 3
    assert obs_trees.stack([np.array([1]), np.array([2])]).tolist() == [[1], [2]]
    picked = obs_trees.index(nested(), np.array([1]))
    assert picked.camera.tolist() == [[3, 4]]
    assert picked.arm.position.tolist() == [6.0]
    assert obs_trees.index(np.array([7, 8, 9]), slice(1, None)).tolist() == [8, 9]


def test_a_copy_shares_no_memory():
    original = nested()
    copied = obs_trees.copy(original)
    original.arm.position[0] = -1
    assert copied.arm.position.tolist() == [5.0, 6.0]
    assert isinstance(copied, FastTreeValue)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_tree_survives_the_way_to_treetensor_and_back(backend):
    library = pytest.importorskip(f"treetensor.{backend}")
    converted = obs_trees.to_treetensor(nested(), backend)
    assert isinstance(converted, library.ndarray if backend == "numpy" else library.Tensor)
    returned = obs_trees.from_treetensor(converted)
    assert type(returned) is FastTreeValue
    assert same(returned, nested())


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3),
        nested(),
        {"z": 1, "arm": {"position": 2, "angle": (3, 4)}},
        {"arm": FastTreeValue({"b": np.arange(2), "a": np.arange(1)}), "a-b": 5},
        [7, [8, 9]],
        {},
    ],
    ids=["array", "tree", "dicts", "tree in a dict", "lists", "nothing"],
)
def test_named_leaves_are_those_of_the_tree_that_is_not_built(value):
    expected = obs_trees.leaves(obs_trees.from_nested(value))
    found = obs_trees.named(value)
    assert [*found] == [path for path, _ in expected]
    assert all(found[path] is leaf or np.array_equal(found[path], leaf) for path, leaf in expected)
    # Flat paths name the same leaves.
    assert [*obs_trees.named(found)] == [*found]
