"""Actions of Tuple and Dict spaces: trees outside, one row of numbers per action inside.

A row holds the choices of all parts (Discrete, MultiDiscrete, MultiBinary), then the numbers of all parts (Box). Parts
are ordered by their place in a Tuple and by their key in a Dict, and may be nested. If every part is made of choices,
rows are actions of a MultiDiscrete; if every part is a Box, they are actions of a Box. Only if both occur are they of
a kind of their own, ``'composite'``: float32 rows, whose choices are whole numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.errors import ShapeError, SpaceError
from minding.engine.types import Array

COMPOSITE = "composite"
_EXACT = 1 << 24
"""From this number on, float32 cannot hold every integer."""


def joined_space(tree: Mapping[str, Any], *, rescale: bool) -> dict[str, Any]:
    """The description of the space of rows, in the environment's units, for `engine.data.actions.ActionAdapter`.

    Returns:
      A description as of a single space, with the entry ``'tree'``. Of both kinds, ``{'kind': 'composite', 'shape':
      [K + A], 'dtype': 'float32', 'nvec': counts of the K choices, 'start': their first values, 'low', 'high': bounds
      of the A numbers, 'rescaled': bool}``.
    """
    leaves = [leaf for _, leaf in parts_of(tree)]
    if not leaves:
        raise SpaceError("a Tuple or Dict of actions has no parts: there is nothing to decide")
    choices, boxes = _choices(leaves), [leaf for leaf in leaves if leaf["kind"] == "box"]
    nvec = [int(n) for leaf in choices for n in np.ravel(leaf.get("nvec", leaf.get("n")))]
    start = [int(each) for leaf in choices for each in np.ravel(leaf["start"])]
    low, high = ([float(x) for leaf in boxes for x in _filled(leaf, end)] for end in ("low", "high"))
    counted = {"nvec": nvec, "start": start}
    bounds = {"low": low, "high": high, "rescaled": rescale and bool(np.isfinite([*low, *high]).all())}
    if not boxes:
        return {"kind": "multi_discrete", "shape": [len(nvec)], "dtype": "int64", **counted, "tree": dict(tree)}
    if not choices:
        return {"kind": "box", "shape": [len(low)], "dtype": "float32", **bounds, "tree": dict(tree)}
    for count, first in zip(nvec, start):
        if max(abs(first), abs(first + count)) >= _EXACT:
            raise SpaceError(
                f"a choice between {first} and {first + count - 1} beside numbers (Box): expected values below "
                f"{_EXACT:,}, which float32 holds exactly; count from 0"
            )
    shape = [len(nvec) + len(low)]
    return {"kind": COMPOSITE, "shape": shape, "dtype": "float32", **counted, **bounds, "tree": dict(tree)}


def parts_of(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The paths, such as ``'arm.0'``, and descriptions of the parts of a tree, in order."""
    if tree["kind"] not in ("tuple", "dict"):
        yield path, tree
        return
    for key, child in _children(tree):
        yield from parts_of(child, _under(path, key))


def _children(tree: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    spaces = tree["spaces"]
    return sorted(spaces.items()) if tree["kind"] == "dict" else list(enumerate(spaces))


def _choices(leaves: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [leaf for leaf in leaves if leaf["kind"] != "box"]


def _filled(leaf: Mapping[str, Any], end: str) -> Array:
    return np.broadcast_to(np.asarray(leaf[end], np.float64), leaf["shape"]).ravel()


def number_owners(space: Mapping[str, Any]) -> list[int]:
    """For each number of a parametrised action, the choice whose parameter it is: that at the place of its Box."""
    boxes = [part for _, part in parts_of(space["tree"]) if part["kind"] == "box"]
    if space["nvec"] != [len(boxes)]:
        raise SpaceError(
            f"expected an action of one choice with a Box for each of its values, got choices of {space['nvec']} "
            f"values and {len(boxes)} Box{'es' * (len(boxes) != 1)}"
        )
    return [k for k, box in enumerate(boxes) for _ in range(_size(box))]


class ActionTree:
    """Joins actions of a Tuple or Dict space to rows, and splits rows."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._tree, self._dtype = space["tree"], np.dtype(space["dtype"])
        self._width = int(space["shape"][0])
        self._parts = dict(parts_of(self._tree))
        choice, number = 0, sum(map(_size, _choices([*self._parts.values()])))
        self._columns: dict[str, slice] = {}
        for path, part in self._parts.items():
            size = _size(part)
            if part["kind"] == "box":
                self._columns[path], number = slice(number, number + size), number + size
            else:
                self._columns[path], choice = slice(choice, choice + size), choice + size

    def split(self, rows: Array) -> Any:
        """The tree of rows of actions ``(..., W)``: tuples and dicts as in the space, arrays ``(..., *shape)`` in the
        parts' dtypes, clipped to their bounds, beyond which float32 may have rounded them. Of one row, the action of a
        Discrete part is a NumPy integer."""
        return _unflattened(self._tree, "", self.named(rows))

    def named(self, rows: Array) -> dict[str, Array]:
        """The arrays of `split` by the path of their part, such as ``'arm.0'``."""
        return {path: self._values(path, part, rows) for path, part in self._parts.items()}

    def _values(self, path: str, part: Mapping[str, Any], rows: Array) -> Array:
        values = rows[..., self._columns[path]].reshape((*rows.shape[:-1], *part["shape"])).astype(part["dtype"])
        if part["kind"] == "box":
            low, high = (np.asarray(part[end], values.dtype) for end in ("low", "high"))
            return np.asarray(np.clip(values, low, high))
        single: Array = values[()]
        return single

    def join(self, tree: Any, lead: tuple[int, ...] = ()) -> Array:
        """The rows ``(*lead, W)`` of a tree of tuples (or lists) and dicts as in the space, of values ``(*lead,
        *shape)``."""
        rows = np.empty((*lead, self._width), self._dtype)
        for path, given in _flattened(self._tree, "", tree):
            part = self._parts[path]
            values, shape, kinds = np.asarray(given), (*lead, *part["shape"]), "fiu" if part["kind"] == "box" else "biu"
            if values.shape != shape or values.dtype.kind not in kinds:
                kind = "numbers" if part["kind"] == "box" else "integers"
                raise ShapeError(f"{_label(path)}: expected {kind} {shape}, got {values.dtype} {values.shape}")
            rows[..., self._columns[path]] = values.reshape((*lead, -1))
        return rows


def _unflattened(tree: Mapping[str, Any], path: str, values: Mapping[str, Any]) -> Any:
    if tree["kind"] == "tuple":
        return tuple(_unflattened(child, _under(path, key), values) for key, child in _children(tree))
    if tree["kind"] == "dict":
        return {key: _unflattened(child, _under(path, key), values) for key, child in _children(tree)}
    return values[path]


def _flattened(tree: Mapping[str, Any], path: str, given: Any) -> Iterator[tuple[str, Any]]:
    """The values of a tree of actions by path; ShapeError unless it has the parts of the space."""
    if tree["kind"] not in ("tuple", "dict"):
        yield path, given
        return
    children = _children(tree)
    if tree["kind"] == "dict":
        fits = isinstance(given, Mapping) and given.keys() == {key for key, _ in children}
    else:
        fits = isinstance(given, tuple | list) and len(given) == len(children)
    if not fits:
        keys = ", ".join(repr(key) for key, _ in children)
        wanted = f"a dict with {keys}" if tree["kind"] == "dict" else f"a tuple of {len(children)} parts"
        raise ShapeError(f"{_label(path)}: expected {wanted}, got {_brief(given)}")
    for key, child in children:
        yield from _flattened(child, _under(path, key), given[key])


def _size(leaf: Mapping[str, Any]) -> int:
    return math.prod(leaf["shape"])


def _under(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _label(path: str) -> str:
    return f"action {path!r}" if path else "action"


def _brief(given: Any) -> str:
    if isinstance(given, Mapping):
        return f"a dict with {', '.join(map(repr, given)) or 'nothing'}"
    return f"{len(given)} parts" if isinstance(given, tuple | list) else type(given).__name__
