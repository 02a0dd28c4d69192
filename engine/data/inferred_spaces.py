"""Spaces that are inferred from arrays, limits of actions that the user adds, and episodes in the dtypes of spaces."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.episode import RECORDED, Episode
from minding.engine.data.observation import ACTION_MASK, observation_leaves
from minding.engine.types import Array


def infer_spaces(episodes: Sequence[Episode], action_low: Any = None, action_high: Any = None) -> dict[str, Any]:
    """A description (see `engine.data.description.describe`) whose spaces contain the values of some episodes."""
    leaves = {path: box_of(values) for path, values in episodes[0].obs.items()}
    first = episodes[0].action
    if first.dtype.kind == "f":
        action = unlimited(first.shape[1:])
    else:
        low, high = (
            np.asarray(pick([pick(each.action.astype(np.int64), axis=0) for each in episodes], axis=0))
            for pick in (np.min, np.max)
        )
        if first.dtype == np.bool_:
            low, high = np.zeros_like(low), np.ones_like(high)
        mask = episodes[0].obs.get(ACTION_MASK)
        if mask is not None and mask.ndim == 2 and not low.ndim and action_low is None and action_high is None:
            # An action that was never taken has an entry, too.
            action_low, action_high = 0, max(mask.shape[1] - 1, int(high))
        action = choices(low, high, action_low, action_high)
        if mask is not None:
            leaves[ACTION_MASK] = _mask(mask, action)
            if len(leaves) == 1:
                raise ValueError(f"obs has no part but {ACTION_MASK!r}: add one for the policy to observe")
    observation = leaves[""] if [*leaves] == [""] else {"kind": "dict", "spaces": leaves}
    return {
        **{"env_id": RECORDED, "wrappers": [], "env_kwargs": {}, "max_episode_steps": None},
        **{"observation": observation, "env_action": action},
    }


def _mask(values: Array, action: Mapping[str, Any]) -> dict[str, Any]:
    """The description of action masks ``(T, A)`` beside a space of choices."""
    counts = [action["n"]] if action["kind"] == "discrete" else np.ravel(action["nvec"]).tolist()
    if values.shape[1:] != (sum(counts),):
        raise ValueError(
            f"obs {ACTION_MASK!r} has rows of the shape {values.shape[1:]}, expected ({sum(counts)},): one entry for "
            f"each of the {' + '.join(map(str, counts))} actions; where not all of them were taken, give their range "
            "with env= or with action_low= and action_high="
        )
    return {"kind": "action_mask", "counts": counts}


def box_of(values: Array) -> dict[str, Any]:
    """A Box of all numbers, or of images, for observations ``(T, ...)``."""
    shape = list(values.shape[1:])
    if values.dtype == np.uint8:
        return {"kind": "box", "shape": shape, "dtype": "uint8", "low": 0, "high": 255}
    low, high = (np.full(shape, end).tolist() for end in (-np.inf, np.inf))
    return {"kind": "box", "shape": shape, "dtype": "float32", "low": low, "high": high}


def unlimited(shape: Sequence[int]) -> dict[str, Any]:
    """A Box of actions without limits."""
    limits = {"low": -np.inf, "high": np.inf, "rescaled": False}
    return {"kind": "box", "shape": list(shape), "dtype": "float32", **limits}


def choices(low: Array, high: Array, action_low: Any = None, action_high: Any = None) -> dict[str, Any]:
    """The space of integer actions."""
    limited = action_low is not None or action_high is not None
    if limited:
        least, most = (_limits(value, name, low.shape) for name, value in _named(action_low, action_high))
        if (least != np.rint(least)).any() or (most != np.rint(most)).any():
            raise ValueError("expected integer limits for integer actions")
        least, most = least.astype(np.int64), most.astype(np.int64)
        if (low < least).any() or (high > most).any():
            raise ValueError(
                f"actions range from {low.tolist()} to {high.tolist()}, outside action_low={action_low} and "
                f"action_high={action_high}: widen the limits to include all actions"
            )
    else:
        least, most = np.zeros_like(low), high
        if (low != 0).any():
            raise ValueError(
                f"the smallest action is {low.tolist()}, but integer actions are choices that count from 0: subtract "
                "it, or give the range with env= or with action_low= and action_high=; pass quantities as floats"
            )
    if not low.ndim:
        count = int(most) - int(least) + 1
        return {"kind": "discrete", "shape": [], "dtype": "int64", "n": count, "start": int(least)}
    nvec, start = (most - least + 1).tolist(), least.tolist()
    return {"kind": "multi_discrete", "shape": list(low.shape), "dtype": "int64", "nvec": nvec, "start": start}


def with_limits(env: Mapping[str, Any], action_low: Any, action_high: Any) -> dict[str, Any]:
    """Returns a description with new limits of a Box of actions. It is unchanged if no limits are given, or if actions
    are choices."""
    found = copy.deepcopy(dict(env))
    space = found["env_action"]
    if (action_low is None and action_high is None) or space["kind"] != "box":
        return found
    low, high = (_limits(value, name, tuple(space["shape"])) for name, value in _named(action_low, action_high))
    if not (low < high).all():
        raise ValueError(f"action_low={action_low} is not below action_high={action_high}")
    # Actions are float32: limits that they cannot reach would put those at a limit outside.
    low, high = (each.astype(space["dtype"]) for each in (low, high))
    space.update(low=_short(low), high=_short(high), rescaled=True)
    return found


def _named(action_low: Any, action_high: Any) -> list[tuple[str, Any]]:
    return [("action_low", action_low), ("action_high", action_high)]


def _limits(value: Any, name: str, shape: tuple[int, ...]) -> Array:
    expected = f"a finite number, or {shape} of them" if shape else "a number"
    if value is None:
        raise ValueError(f"{name} is not given: expected {expected}; limits take action_low and action_high")
    try:
        found = np.asarray(value, np.float64)
        if found.shape not in ((), shape, (1,)) or not np.isfinite(found).all():
            raise ValueError
        return np.broadcast_to(found.reshape(() if found.size == 1 else shape), shape)
    except (ValueError, TypeError):
        raise ValueError(f"{name}={str(value)[:60]}: expected {expected}") from None


def _short(bound: Array) -> Any:
    return bound.flat[0].item() if (bound == bound.flat[0]).all() else bound.tolist()


def fitted(episode: Episode, env: Mapping[str, Any]) -> Episode:
    """Returns an episode in the dtypes of an environment; its values do not change."""
    leaves = {leaf.path: leaf.field for leaf in observation_leaves(env["observation"])}
    if episode.obs.keys() != leaves.keys():
        parts = [", ".join(repr(path) for path in sorted(each)) for each in (episode.obs, leaves)]
        raise ValueError(f"obs has the parts {parts[0]}, the environment's are {parts[1]} ('' is a plain array)")
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
    if kind not in ("box", COMPOSITE) and values.dtype.kind == "f":
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
