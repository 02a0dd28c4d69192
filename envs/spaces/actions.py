"""The supported action spaces, their form for policies, and their descriptions."""

from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.action_trees import COMPOSITE, ActionTree, joined_space
from minding.engine.errors import SpaceError
from minding.engine.types import Array

NO_BOUND = 2.0**53
"""A bound of at least this size (9.0e15), or the largest number of its dtype, limits nothing: it is a placeholder, such
as the largest number of float32, float64 or int64. No controlled quantity is as large in SI units, and from this number
on float64 cannot hold every integer."""


class JoinedActions(spaces.Space[Any]):
    """The rows of actions of a Tuple or Dict space, see `engine.data.action_trees`."""

    def __init__(self, tree: spaces.Space[Any], num_envs: int | None = None) -> None:
        self.tree, self.num_envs, self.described = tree, num_envs, _described_tree(tree, "")
        rows = joined_space(self.described, rescale=False)
        self.codec = ActionTree(rows)
        super().__init__((*(() if num_envs is None else (num_envs,)), *rows["shape"]), np.dtype(rows["dtype"]))

    def sample(self, mask: Any = None, probability: Any = None) -> Array:
        """A random row, or N of them; numbers without bounds are drawn as by their Box."""
        rows = [self.codec.join(self.tree.sample()) for _ in range(self.num_envs or 1)]
        return rows[0] if self.num_envs is None else np.stack(rows)

    def contains(self, x: Any) -> bool:
        """Whether the action of every row is in the space `tree`."""
        if not isinstance(x, np.ndarray) or x.shape != self.shape:
            return False
        rows = x[None] if self.num_envs is None else x
        return all(self.tree.contains(self.codec.split(row)) for row in rows)

    def seed(self, seed: Any = None) -> Any:
        """Seeds the spaces of the parts."""
        return self.tree.seed(seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JoinedActions) and (self.tree, self.num_envs) == (other.tree, other.num_envs)

    def __repr__(self) -> str:
        return repr(self.tree)


class CompositeSpace(spaces.Space[Any]):
    """The rows in which a policy acts if an action has choices and numbers, see `engine.data.action_trees`."""

    def __init__(self, nvec: list[int], low: Array, high: Array) -> None:
        self.nvec, self.low, self.high = nvec, low, high
        super().__init__((len(nvec) + len(low),), np.float32)

    @property
    def is_np_flattenable(self) -> bool:
        return False


def _described_tree(space: spaces.Space[Any], path: str) -> dict[str, Any]:
    """A Tuple or Dict and the parts in it, each as `describe_actions` describes it without rescaling."""
    if isinstance(space, spaces.Tuple):
        parts = [_described_tree(part, f"{path}.{k}" if path else str(k)) for k, part in enumerate(space.spaces)]
        return {"kind": "tuple", "spaces": parts}
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            if not isinstance(key, str):
                raise SpaceError(f"action key {key!r}: expected a string")
        keyed = {key: _described_tree(part, f"{path}.{key}" if path else key) for key, part in space.spaces.items()}
        return {"kind": "dict", "spaces": dict(sorted(keyed.items()))}
    try:
        described = describe_actions(space, rescale=False)
    except SpaceError as error:
        raise SpaceError(f"part {path!r} of the actions: {error}") from None
    described.pop("rescaled", None)
    return described


def without_placeholders(space: spaces.Box) -> spaces.Box:
    """The Box with infinite bounds in place of placeholders (see `NO_BOUND`); the same Box if it has no placeholders.
    Only this function recognizes placeholders: all other code checks whether bounds are finite."""
    if space.dtype.kind != "f":
        return space
    end = min(NO_BOUND, float(np.finfo(space.dtype).max))
    low = np.where(space.low <= -end, -np.inf, space.low).astype(space.dtype)
    high = np.where(space.high >= end, np.inf, space.high).astype(space.dtype)
    if np.array_equal(low, space.low) and np.array_equal(high, space.high):
        return space
    return spaces.Box(low, high, dtype=space.dtype.type)


def describe_actions(space: spaces.Space[Any], *, rescale: bool) -> dict[str, Any]:
    """Describes the environment's own action space in plain values, for `engine.data.actions.ActionAdapter`. A Box
    whose bounds are all finite is rescaled if `rescale` is on; a Box with an infinite bound, or with a placeholder (see
    `without_placeholders`), cannot be rescaled, nor can the other Boxes of the same Tuple or Dict."""
    if isinstance(space, JoinedActions):
        return joined_space(space.described, rescale=rescale)
    policy_action_space(space, rescale=rescale)  # raises for spaces in which policies cannot act
    described: dict[str, Any] = {"shape": list(space.shape or ()), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Box):
        limits = without_placeholders(space)
        bounds = {"low": _short(limits.low), "high": _short(limits.high)}
        return {"kind": "box", **described, **bounds, "rescaled": rescale and is_bounded(space)}
    if isinstance(space, spaces.MultiBinary):
        space = as_multi_discrete(space)
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multi_discrete", **described, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    assert isinstance(space, spaces.Discrete)
    return {"kind": "discrete", **described, "n": int(space.n), "start": int(space.start)}


def policy_action_space(space: spaces.Space[Any], *, rescale: bool) -> spaces.Space[Any]:
    """The space in which the policy acts: [-1, 1] for a rescaled Box; discrete actions count from 0. In a MultiBinary
    space a policy acts as in a MultiDiscrete of twos; in a Tuple or Dict, as in a MultiDiscrete or a Box if its parts
    have only choices or only numbers, else in a `CompositeSpace`."""
    if isinstance(space, JoinedActions):
        return _policy_rows(joined_space(space.described, rescale=rescale))
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiBinary):
        space = as_multi_discrete(space)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.ravel())
    if not isinstance(space, spaces.Box):
        raise SpaceError(
            f"action space {space} is not supported; expected Discrete, MultiDiscrete, MultiBinary or Box, or a Tuple "
            "or Dict of them: wrap the environment in a gymnasium.ActionWrapper that has one of these"
        )
    if not all(space.shape):
        raise SpaceError(f"action space {space} has no numbers: there is nothing to decide")
    if space.dtype.kind != "f":
        raise SpaceError(f"action space {space}: expected a Box of floats; use MultiDiscrete for integers")
    if rescale and is_bounded(space):
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)
    return without_placeholders(space)


def _policy_rows(rows: dict[str, Any]) -> spaces.Space[Any]:
    """The policy's own space for rows that `joined_space` describes."""
    if rows["kind"] == "multi_discrete":
        return spaces.MultiDiscrete(rows["nvec"])
    low, high = (np.array(rows[end], np.float32) for end in ("low", "high"))
    if rows["rescaled"]:
        low, high = np.full_like(low, -1), np.ones_like(high)
    if rows["kind"] == COMPOSITE:
        return CompositeSpace(rows["nvec"], low, high)
    return spaces.Box(low, high, dtype=np.float32)


def as_multi_discrete(space: spaces.MultiBinary) -> spaces.MultiDiscrete:
    """The same actions as choices between 0 and 1."""
    return spaces.MultiDiscrete(np.full(space.shape, 2), dtype=space.dtype.type)


def is_bounded(space: spaces.Box) -> bool:
    """Whether all bounds of the Box are finite and not placeholders, so that [-1, 1] can be mapped to them."""
    limits = without_placeholders(space)
    return bool(np.isfinite(limits.low).all() and np.isfinite(limits.high).all())


def _short(bound: Array) -> Any:
    return bound.flat[0].item() if (bound == bound.flat[0]).all() else bound.tolist()
