"""The supported action spaces, their form for policies, and their descriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.errors import SpaceError
from minding.engine.types import Array

NO_BOUND = 2.0**53
"""A bound of at least this size (9.0e15), or the largest number of its dtype, limits nothing: it is a placeholder, such
as the largest number of float32, float64 or int64. No controlled quantity is as large in SI units, and from this number
on float64 cannot hold every integer."""


def without_placeholders(space: spaces.Box) -> spaces.Box:
    """The Box with infinite bounds in place of placeholders (see `NO_BOUND`); the same Box if it has no placeholders.

    Only this function recognizes placeholders: all other code checks whether bounds are finite.
    """
    if space.dtype.kind != "f":
        return space
    end = min(NO_BOUND, float(np.finfo(space.dtype).max))
    low = np.where(space.low <= -end, -np.inf, space.low).astype(space.dtype)
    high = np.where(space.high >= end, np.inf, space.high).astype(space.dtype)
    if np.array_equal(low, space.low) and np.array_equal(high, space.high):
        return space
    return spaces.Box(low, high, dtype=space.dtype.type)


def describe_actions(space: spaces.Space[Any], *, rescale: bool) -> dict[str, Any]:
    """Describes the environment's own action space in plain values, for `engine.data.actions.ActionAdapter`.

    A Box whose bounds are all finite is rescaled if `rescale` is on; a Box with an infinite bound, or with a
    placeholder (see `without_placeholders`), cannot be rescaled.

    Returns:
      A dict with the keys 'kind', 'shape' and 'dtype'; for a Box also 'low', 'high' (a single number if all are equal)
      and 'rescaled', for a Discrete 'n' and 'start', for a MultiDiscrete 'nvec' and 'start'. A MultiBinary is described
      as a MultiDiscrete of twos.
    Raises:
      SpaceError: as for `policy_action_space`.
    """
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
    """The space in which the policy acts: [-1, 1] for a rescaled Box; discrete actions count from 0.

    In a MultiBinary space a policy acts as in a MultiDiscrete of twos.

    Raises:
      SpaceError: for a Box of integers, an empty Box, and spaces of other kinds.
    """
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiBinary):
        space = as_multi_discrete(space)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.ravel())
    if not isinstance(space, spaces.Box):
        raise SpaceError(
            f"action space {space} is not supported; expected Discrete, MultiDiscrete, MultiBinary or Box: wrap the "
            "environment in a gymnasium.ActionWrapper that has one of these"
        )
    if not all(space.shape):
        raise SpaceError(f"action space {space} has no numbers: there is nothing to decide")
    if space.dtype.kind != "f":
        raise SpaceError(f"action space {space}: expected a Box of floats; use MultiDiscrete for integers")
    if rescale and is_bounded(space):
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)
    return without_placeholders(space)


def as_multi_discrete(space: spaces.MultiBinary) -> spaces.MultiDiscrete:
    """The same actions as choices between 0 and 1."""
    return spaces.MultiDiscrete(np.full(space.shape, 2), dtype=space.dtype.type)


def is_bounded(space: spaces.Box) -> bool:
    """Whether all bounds of the Box are finite and not placeholders, so that [-1, 1] can be mapped to them."""
    limits = without_placeholders(space)
    return bool(np.isfinite(limits.low).all() and np.isfinite(limits.high).all())


def _short(bound: Array) -> Any:
    return bound.flat[0].item() if (bound == bound.flat[0]).all() else bound.tolist()
