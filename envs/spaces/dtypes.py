"""Compares the dtypes of observations with the dtypes that the observation space declares."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from minding.envs.spaces.info import INFO
from minding.envs.spaces.layout import ObsLayout


def other_dtypes(layout: ObsLayout, obs: Any) -> set[str]:
    """Messages about leaves whose dtype differs from the declared dtype."""
    found = set()
    for leaf in layout.leaves:
        value = obs
        for key in leaf.keys:
            value = value[key]
        given = np.asarray(value).dtype
        if leaf.shape and given != leaf.source_dtype and not leaf.choices and leaf.part != INFO:
            found.add(f"{leaf.label} is {given}, its space says {leaf.source_dtype}")
    return found


def as_declared(space: spaces.Space[Any] | None, obs: Any) -> Any:
    """`obs` in the dtypes of its space: `Box.contains` would refuse wider dtypes, even for values within the bounds."""
    if isinstance(space, spaces.Dict) and isinstance(obs, dict):
        return {key: as_declared(space.spaces.get(key), value) for key, value in obs.items()}
    if isinstance(space, spaces.Tuple) and isinstance(obs, tuple):
        known = len(space.spaces)
        return (*(as_declared(child, value) for child, value in zip(space.spaces, obs)), *obs[known:])
    if isinstance(space, spaces.Box) and isinstance(obs, np.ndarray):
        return obs.astype(space.dtype, copy=False)
    return obs
