"""Which action spaces there are, what policies see of them, and their descriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.errors import SpaceError
from minding.engine.types import Array


def describe_actions(space: spaces.Space[Any], *, rescale: bool) -> dict[str, Any]:
    """Describes the environment's own action space in plain values, for `engine.data.actions.ActionAdapter`.

    A Box whose bounds are all finite is rescaled if `rescale` is on; one with an infinite bound cannot be.

    Returns:
      'kind', 'shape' and 'dtype'; for a Box also 'low', 'high' (one number each where all are equal) and 'rescaled',
      for a Discrete 'n' and 'start', for a MultiDiscrete 'nvec' and 'start'.
    Raises:
      SpaceError: as `policy_action_space`.
    """
    policy_space = policy_action_space(space, rescale=rescale)
    described: dict[str, Any] = {"shape": list(space.shape or ()), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _short(space.low), "high": _short(space.high)}
        return {"kind": "box", **described, **bounds, "rescaled": policy_space is not space}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multi_discrete", **described, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    assert isinstance(space, spaces.Discrete)
    return {"kind": "discrete", **described, "n": int(space.n), "start": int(space.start)}


def policy_action_space(space: spaces.Space[Any], *, rescale: bool) -> spaces.Space[Any]:
    """The space the policy acts in: [-1, 1] for a rescaled Box, counting from 0 for discrete ones.

    Raises:
      SpaceError: for a Box of integers, one without numbers, and spaces of other kinds.
    """
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.ravel())
    if not isinstance(space, spaces.Box):
        raise SpaceError(
            f"action space {space} is not supported; expected Discrete, MultiDiscrete or Box: wrap the environment in "
            "a gymnasium.ActionWrapper that has one of these"
        )
    if not all(space.shape):
        raise SpaceError(f"action space {space} has no numbers: there is nothing to decide")
    if space.dtype.kind != "f":
        raise SpaceError(f"action space {space}: expected a Box of floats; use MultiDiscrete for integers")
    if rescale and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)
    return space


def _short(bound: Array) -> Any:
    return bound.flat[0].item() if (bound == bound.flat[0]).all() else bound.tolist()
