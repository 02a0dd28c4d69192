"""Converts episodes to the dtypes of the spaces that they are declared to have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minding.engine.data.observation import observation_leaves
from minding.engine.types import Array

if TYPE_CHECKING:
    from minding.engine.data.dataset_writer import Episode


def fitted(episode: Episode, env: Mapping[str, Any]) -> Episode:
    """Returns an episode in the dtypes of an environment; its values do not change.

    Args:
      episode: the episode as it was logged.
      env: description of the environment, see `engine.data.dataset.describe`.
    Raises:
      ValueError: a part does not have the environment's shape or kind of number; names the part and both.
    """
    leaves = {leaf.path: leaf.field for leaf in observation_leaves(env["observation"])}
    if episode.obs.keys() != leaves.keys():
        told = [", ".join(repr(path) for path in sorted(each)) for each in (episode.obs, leaves)]
        raise ValueError(f"obs has the parts {told[0]}, the environment's are {told[1]} ('' is a plain array)")
    obs, final = {}, {}
    for path, field in leaves.items():
        name = f"obs {path!r}" if path else "obs"
        obs[path] = _cast(episode.obs[path], name, field.shape, np.dtype(field.dtype))
        final[path] = _cast(episode.final_obs[path][None], name, field.shape, np.dtype(field.dtype))[0]
    space = env["env_action"]
    action = _action(episode.action, tuple(space["shape"]), np.dtype(space["dtype"]), space["kind"])
    return dataclasses.replace(episode, obs=obs, final_obs=final, action=action)


def _action(values: Array, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str) -> Array:
    if values.shape[1:] == (*shape, 1):
        values = values.reshape(len(values), *shape)
    elif shape == (1,) and values.ndim == 1:
        values = values[:, None]
    if kind == "box" and values.dtype.kind == "b":
        raise ValueError("action is bool, the environment's actions are numbers within limits (Box)")
    if kind != "box" and values.dtype.kind == "f":
        raise ValueError(f"action is {values.dtype}, the environment's actions are choices: expected integers")
    return _cast(values, "action", shape, dtype)


def _cast(values: Array, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if values.shape[1:] != tuple(shape):
        raise ValueError(f"{name} has rows of the shape {values.shape[1:]}, the environment's {tuple(shape)}")
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = values.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(found, values):
        row = int(np.argmax((found != values).reshape(len(values), -1).any(axis=1)))
        raise ValueError(f"{name} is {values[row]} at step {row}, the environment has {dtype}")
    return found
