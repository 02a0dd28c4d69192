"""Helpers over observations: one array, or a `treevalue.FastTreeValue` of arrays.

A plain array is the common case and the hot loop, so it is always tested first. `treevalue` is imported only
where a tree is built: it pulls in torch if that is installed, a cost that environment workers must avoid.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.errors import MissingExtraError, ShapeError
from minding.engine.process.packages import import_installed
from minding.engine.types import Array

Tree = Any
"""An array or a FastTreeValue of arrays."""


def is_tree(value: Any) -> bool:
    """Whether `value` is a tree of several leaves (not a plain array)."""
    # A TreeValue cannot exist before the module was imported.
    treevalue = sys.modules.get("treevalue")
    return treevalue is not None and isinstance(value, treevalue.TreeValue)


def tree_map(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Applies `fn` to the leaves of trees of one structure."""
    if isinstance(tree, np.ndarray) or not is_tree(tree):
        return fn(tree, *rest)
    keys = set(tree.keys())
    for other in rest:
        if not is_tree(other) or set(other.keys()) != keys:
            given = sorted(other.keys()) if is_tree(other) else type(other).__name__
            raise ShapeError(f"trees differ: expected the keys {sorted(keys)}, got {given}")
    return _fast_tree({key: tree_map(fn, tree[key], *(other[key] for other in rest)) for key in sorted(keys)})


def leaves(tree: Tree) -> tuple[tuple[str, Any], ...]:
    """The leaves as (path, array) in key order; paths look like ``'joint.position'``, ``''`` for an array."""
    if isinstance(tree, np.ndarray) or not is_tree(tree):
        return (("", tree),)
    found: list[tuple[str, Any]] = []
    for key in sorted(tree.keys()):
        found.extend((f"{key}.{path}" if path else key, leaf) for path, leaf in leaves(tree[key]))
    return tuple(found)


def unflatten(items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Tree:
    """Inverse of `leaves`: the path ``''`` alone gives the plain leaf, dotted paths give nested trees."""
    found = nested(dict(items))
    return _fast_tree(found) if isinstance(found, dict) else found


def nested(pairs: Mapping[str, Any]) -> Any:
    """As `unflatten`, but nested dicts in place of trees."""
    if set(pairs) == {""}:
        return pairs[""]
    found: dict[str, Any] = {}
    for path, leaf in pairs.items():
        *parents, last = path.split(".")
        node = found
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = leaf
    return found


def from_nested(value: Any) -> Tree:
    """A tree made of nested dicts, tuples and lists, as Gymnasium returns them; any other value unchanged."""
    found = dict(_nested_leaves(value))
    return value if set(found) == {""} else unflatten(found)


def named(value: Any) -> dict[str, Any]:
    """The leaves of a tree or of nested dicts, tuples and lists, path -> leaf, in the order of `leaves`. They are the
    leaves of `from_nested`, but no tree is built. Flat dicts of dotted paths are accepted, too."""
    if isinstance(value, np.ndarray):
        return {"": value}
    if is_tree(value):
        return dict(leaves(value))
    found: dict[str, Any] = {}
    for path, item in _nested_leaves(value):
        found |= {f"{path}.{inner}": leaf for inner, leaf in leaves(item)} if is_tree(item) else {path: item}
    return {path: found[path] for path in sorted(found, key=lambda path: path.split("."))}


def _nested_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, (Mapping, tuple, list)):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _nested_leaves(item, f"{path}.{key}" if path else str(key))


def stack(trees: Sequence[Tree], axis: int = 0) -> Tree:
    """Stacks trees of one structure along a new axis."""
    if isinstance(trees[0], np.ndarray):
        return np.stack(trees, axis)
    return tree_map(lambda *arrays: np.stack(arrays, axis), *trees)


def index(tree: Tree, rows: Any) -> Tree:
    """``array[rows]`` of every leaf; `rows` is an int, a slice, an index array or a bool mask."""
    if isinstance(tree, np.ndarray):
        return tree[rows]
    return tree_map(lambda array: array[rows], tree)


def copy(tree: Tree) -> Tree:
    if isinstance(tree, np.ndarray):
        return tree.copy()
    return tree_map(np.copy, tree)


def to_treetensor(tree: Tree, backend: str = "numpy") -> Any:
    """Converts to DI-treetensor; leaves share memory with `tree`."""
    if backend not in ("numpy", "torch"):
        raise ValueError(f"to_treetensor(backend={backend!r}): expected 'numpy' or 'torch'")
    try:
        treetensor = import_installed(f"treetensor.{backend}")
    except ImportError:
        raise MissingExtraError("DI-treetensor", "treetensor", "conversion to treetensor") from None
    if backend == "torch":
        tree = tree_map(import_installed("torch").from_numpy, tree)
        return treetensor.Tensor(tree) if is_tree(tree) else tree
    return treetensor.ndarray(tree) if is_tree(tree) else tree


def from_treetensor(value: Any) -> Tree:
    """Inverse of `to_treetensor`; also takes a plain torch tensor."""

    def to_array(leaf: Any) -> Array:
        return leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else np.asarray(leaf)

    return tree_map(to_array, value)


def _fast_tree(nested: dict[str, Any]) -> Tree:
    from treevalue import FastTreeValue
    from treevalue.tree.common import create_storage

    # Given a dict, FastTreeValue first formats every array as a string, which takes milliseconds.
    return FastTreeValue(create_storage(nested))
