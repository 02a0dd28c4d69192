"""The parts of an observation, read from its space description (see `envs.describe_env`)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from minding.engine.data.batch import Field
from minding.engine.errors import SpaceError

_MAX_COLORS = 4


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array of the observation: its path in the tree ('' for a plain array) and its space description."""

    path: str
    space: Mapping[str, Any]

    @property
    def is_image(self) -> bool:
        return self.space["kind"] == "box" and self.space["dtype"] == "uint8" and len(self.space["shape"]) == 3

    @property
    def is_mask(self) -> bool:
        """Whether it says which actions are legal (see `engine.data.masks`); networks do not take it as a number."""
        return bool(self.space["kind"] == "action_mask")

    @property
    def has_channels_last(self) -> bool:
        """Whether this is an image ``(H, W, C)``: read as ``(C, H, W)`` it would be four pixels wide at most."""
        return self.is_image and self.space["shape"][2] <= _MAX_COLORS < self.space["shape"][0]

    @property
    def field(self) -> Field:
        """The field of a row that stores this leaf."""
        kind = self.space["kind"]
        if kind == "discrete":
            return Field((), "int32")
        if kind == "multi_discrete":
            return Field((len(self.space["nvec"]),), "int32")
        if self.is_mask:
            return Field((sum(self.space["counts"]),), "bool")
        dtype = "uint8" if self.is_image else "float32"
        return Field(tuple(self.space["shape"]), dtype)


def observation_leaves(space: Mapping[str, Any], path: str = "") -> list[Leaf]:
    """The leaves of a space description, in the order of `trees.leaves`."""
    if space["kind"] in ("dict", "tuple"):
        spaces = space["spaces"]
        items = spaces.items() if space["kind"] == "dict" else ((str(i), s) for i, s in enumerate(spaces))
        return [
            leaf
            for key, child in sorted(items)
            for leaf in observation_leaves(child, f"{path}.{key}" if path else str(key))
        ]
    if space["kind"] not in ("box", "discrete", "multi_discrete", "multi_binary", "action_mask"):
        raise SpaceError(f"observation {path or '(root)'}: no encoder for a space of kind {space['kind']!r}")
    return [Leaf(path, space)]


def leaf_name(prefix: str, leaf: Leaf) -> str:
    """Name of the row field that holds a leaf of the observation `prefix`."""
    return f"{prefix}.{leaf.path}" if leaf.path else prefix
