"""Recorded data from arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minding.engine.errors import DataError
from minding.engine.types import Array

if TYPE_CHECKING:
    from minding.engine.data.dataset import Dataset
    from minding.engine.data.dataset_writer import Episode

_PARTS = ("obs", "action", "reward", "terminated", "truncated")


def of_episodes(episodes: Iterable[Mapping[str, Any]], env: Mapping[str, Any] | None = None) -> Dataset:
    """See `Dataset.of_episodes`."""
    from minding.engine.data.dataset import check_dataset
    from minding.engine.data.dataset_writer import joined

    given = list(episodes)
    if not given:
        raise DataError("of_episodes: there are no episodes")
    made = []
    for number, parts in enumerate(given):
        try:
            made.append(_episode(parts))
        except ValueError as error:
            raise DataError(f"episode {number}: {error}") from None
    described = _made_of(made) if env is None else dict(env)
    dtype = np.dtype(described["env_action"]["dtype"])
    try:
        data = joined([_with_actions(episode, dtype) for episode in made], {"env": described})
        check_dataset(data)
    except ValueError as error:
        raise DataError(f"of_episodes: {error}") from None
    return data


def _episode(parts: Mapping[str, Any]) -> Episode:
    from minding.engine.data.dataset_writer import Episode

    missing = [name for name in _PARTS if name not in parts]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}; expected {', '.join(_PARTS)}")
    action, reward = np.asarray(parts["action"]), np.asarray(parts["reward"], np.float32)
    count = len(reward)
    given = parts["obs"] if isinstance(parts["obs"], Mapping) else {"": parts["obs"]}
    obs = {path: _observations(np.asarray(values)) for path, values in given.items()}
    for name, length, expected in (
        ("action", len(action), count),
        *((f"obs {path}".strip(), len(values), count + 1) for path, values in obs.items()),
    ):
        if length != expected or not count:
            raise ValueError(f"{name} has {length} rows, expected {expected}, with {count} rewards")
    ends = {}
    for name in ("terminated", "truncated"):
        if np.ndim(parts[name]):
            raise ValueError(f"{name}: expected one flag, how the episode ended, got shape {np.shape(parts[name])}")
        ends[name] = bool(parts[name])
    return Episode(
        obs={path: values[:-1] for path, values in obs.items()},
        final_obs={path: values[-1] for path, values in obs.items()},
        action=action,
        reward=reward,
        **ends,
    )


def _observations(values: Array) -> Array:
    return values if values.dtype == np.uint8 and values.ndim == 4 else values.astype(np.float32)


def _with_actions(episode: Episode, dtype: np.dtype[Any]) -> Episode:
    return dataclasses.replace(episode, action=episode.action.astype(dtype, casting="same_kind"))


def _made_of(episodes: list[Episode]) -> dict[str, Any]:
    """What arrays tell of their environment."""
    leaves = {path: _box_of(values) for path, values in episodes[0].obs.items()}
    observation = leaves[""] if [*leaves] == [""] else {"kind": "dict", "spaces": leaves}
    action: dict[str, Any]
    first = episodes[0].action
    if first.dtype.kind in "iu" and first.ndim == 1:
        largest = max(int(episode.action.max()) for episode in episodes)
        action = {"kind": "discrete", "shape": [], "dtype": "int64", "n": largest + 1, "start": 0}
    elif first.dtype.kind in "iu":
        counts = np.max([episode.action.max(axis=0) for episode in episodes], axis=0) + 1
        shape, start = list(first.shape[1:]), np.zeros(first.shape[1:], int).tolist()
        action = {"kind": "multi_discrete", "shape": shape, "dtype": "int64", "nvec": counts.tolist(), "start": start}
    else:
        limits = {"low": -np.inf, "high": np.inf, "rescaled": False}
        action = {"kind": "box", "shape": list(first.shape[1:]), "dtype": "float32", **limits}
    return {
        **{"env_id": "data", "wrappers": [], "env_kwargs": {}, "max_episode_steps": None},
        **{"observation": observation, "env_action": action},
    }


def _box_of(values: Array) -> dict[str, Any]:
    if values.dtype == np.uint8:
        return {"kind": "box", "shape": list(values.shape[1:]), "dtype": "uint8", "low": 0, "high": 255}
    shape = list(values.shape[1:])
    low, high = (np.full(shape, end).tolist() for end in (-np.inf, np.inf))
    return {"kind": "box", "shape": shape, "dtype": "float32", "low": low, "high": high}
