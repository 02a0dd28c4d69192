"""The parts of an observation, read from its space description (see `envs.describe_env`), and action masks.

A mask is bool ``(..., A)``: A actions of a Discrete space, or the joined choices of a MultiDiscrete one, each of which
has `counts` entries. It is the entry `ACTION_MASK` of an observation; an observation that was not a dict becomes the
entry `OBSERVATION` (PettingZoo's names).
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.batch import Field
from minding.engine.errors import SpaceError
from minding.engine.types import Array, Obs, ObsLike

ACTION_MASK = "action_mask"
LEGAL_ACTION = "legal_action"
"""KaiWu's name of the mask; it is not read."""
OBSERVATION = "observation"
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
        """Whether it says which actions are legal; networks do not take it as a number."""
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


def first_entries(counts: Sequence[int]) -> list[int]:
    """The index of the first entry of each choice in a mask."""
    return [0, *np.cumsum(counts).tolist()[:-1]]


def without_legal(mask: Array, counts: Sequence[int]) -> Array:
    """Bool ``(...)``, true where a choice has no legal entry; mask: bool ``(..., A)``."""
    if len(counts) == 1:
        some: Array = mask.any(axis=-1)
    else:
        some = np.logical_or.reduceat(mask, first_entries(counts), axis=-1).all(axis=-1)
    return ~some


def random_legal(mask: Array, counts: Sequence[int], rng: np.random.Generator) -> Array:
    """Draws every legal entry of a choice with the same probability, int64 ``(...)`` for one choice, ``(..., K)`` for
    K, by the mask, bool ``(..., A)``; the first entry of a choice without a legal one."""
    drawn = []
    for start, count in zip(first_entries(counts), counts):
        seen = mask[..., start : start + count].cumsum(axis=-1)
        rank = np.floor(rng.random(mask.shape[:-1]) * seen[..., -1])
        action = (seen <= rank[..., None]).sum(axis=-1)
        drawn.append(np.where(seen[..., -1] > 0, action, 0))
    return drawn[0] if len(counts) == 1 else np.stack(drawn, axis=-1)


def with_mask(obs: Any, mask: Any) -> dict[str, Any]:
    """An observation with its mask: a dict gets one more entry, anything else becomes the entry `OBSERVATION`."""
    return {**(obs if isinstance(obs, Mapping) else {OBSERVATION: obs}), ACTION_MASK: mask}


def masked_obs(obs: ObsLike, mask: Array, paths: Collection[str]) -> Obs:
    """The observation that a policy with masks expects, from an environment's observation ``(N, ...)`` and its mask,
    bool ``(N, A)``."""
    leaves = obs_trees.named(obs)
    if not leaves.keys() <= set(paths):
        leaves = {f"{OBSERVATION}.{path}" if path else OBSERVATION: leaf for path, leaf in leaves.items()}
    masked: Obs = obs_trees.unflatten({**leaves, ACTION_MASK: np.asarray(mask)})
    return masked
