"""Minari's format: a folder with metadata.json and main_data.hdf5, in which each episode is a group.

Files are read and written with h5py, and spaces with Minari's own functions; no environment is imported or created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.arrays import flag_of_last_step, rewards_of
from minding.engine.data.dataset import Dataset, episodes_of
from minding.engine.data.episode import RECORDED, Episode
from minding.engine.data.observation import observation_leaves
from minding.engine.data.references import References, references_of
from minding.engine.data.scratch import Scratch
from minding.engine.errors import DataError, ShapeError, SpaceError
from minding.engine.files import read_bounded
from minding.engine.process.installed import import_extra
from minding.engine.types import Array
from minding.envs.recorded import action_space, observation_space
from minding.training.formats.source import Source, Spaces, open_hdf5, part, stored, whole

METADATA, MAIN = "metadata.json", "main_data.hdf5"
_OURS = "minding"
"""Key of the metadata that holds our own description of the environment."""
_MAX_METADATA = 1 << 24
_INDEX = "_index_"
_VERSION = "0.5.3"
_ID = re.compile(r"(?:[-\w][-\w/]*[-\w]/)?[-\w]+-v\d+", re.ASCII)
_REFERENCES = "ref_min_score", "ref_max_score"
"""Keys of the metadata: the returns that score 0 and 100."""


class MinariSource(Source):
    """A Minari set with numeric observations.

    Args:
      path: the folder of the set, or the folder `data` in it.

    Raises:
      DataError: there is no set at the path, or it contains images or strings.
      MissingExtraError: h5py or minari is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path / "data" if (path / "data" / METADATA).exists() else path
        metadata = _metadata(self.path)
        try:
            observation, action = (_space(metadata, f"{kind}_space") for kind in ("observation", "action"))
            _refuse_images(observation, str(path))
            self._spaces = Spaces(observation, action)
        except SpaceError as error:
            raise DataError(f"{str(path)!r}: {error}") from None
        self._observation = observation
        self._file = open_hdf5(self.path / MAIN)
        self._references = _references(metadata, str(path))
        self.env: Mapping[str, Any] = {**_environment(metadata), **self._spaces.description}

    @property
    def references(self) -> References | None:
        return self._references

    def read(self) -> Iterator[Episode | ValueError]:
        """See `Source`."""
        self.ambiguous = 0
        numbers = sorted(
            int(name.removeprefix("episode_")) for name in self._file if re.fullmatch(r"episode_\d{1,9}", name)
        )
        for number in numbers:
            try:
                yield self._episode(part(self._file, f"episode_{number}"))
            except KeyError as error:
                yield ShapeError(f"it lacks a part ({error.args[0]})")
            except (ValueError, OSError) as error:
                yield error if isinstance(error, ValueError) else ShapeError(f"cannot be read ({error})")

    def _episode(self, group: Any) -> Episode:
        reward = rewards_of(whole(stored(group, "rewards")))
        count = len(reward)
        terminated, truncated = (
            flag_of_last_step(whole(stored(group, name)), name, count) for name in ("terminations", "truncations")
        )
        self.ambiguous += terminated and truncated
        obs = self._spaces.observations(_read(group, "observations", self._observation), count + 1)
        return Episode(
            obs={path: values[:-1] for path, values in obs.items()},
            final_obs={path: values[-1] for path, values in obs.items()},
            action=self._spaces.actions(whole(stored(group, "actions"))),
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
        )


def _metadata(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bounded(path / METADATA, _MAX_METADATA))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise DataError(f"{str(path)!r} is not a Minari set: {METADATA}: {reason}") from None
    if not isinstance(found, dict) or found.get("data_format", "hdf5") != "hdf5":
        raise DataError(f"{str(path)!r}: expected a Minari set in HDF5, but its metadata name another format")
    return found


def _space(metadata: Mapping[str, Any], name: str) -> spaces.Space[Any]:
    serialization = import_extra("minari.serialization", "data", "reading a Minari set")
    try:
        space: spaces.Space[Any] = serialization.deserialize_space(metadata[name])
    except KeyError:
        raise SpaceError(
            f"its metadata have no {name}, and minding does not create its environment to read it"
        ) from None
    except Exception as error:  # Minari's parser may raise anything for an unknown file
        raise SpaceError(f"{name} cannot be read ({type(error).__name__}: {error})") from None
    return space


def _refuse_images(space: spaces.Space[Any], where: str) -> None:
    for path, leaf in _leaves(space):
        if isinstance(leaf, spaces.Text) or (isinstance(leaf, spaces.Box) and _is_image(leaf.shape, leaf.dtype)):
            what = "texts" if isinstance(leaf, spaces.Text) else "images, which Minari stores as JPEG"
            raise DataError(f"{where!r}: observation {path or '(root)'} holds {what}: only numbers are converted")


def _leaves(space: spaces.Space[Any], path: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child in items:
            yield from _leaves(child, f"{path}.{key}" if path else str(key))
    else:
        yield path, space


def _is_image(shape: tuple[int, ...], dtype: Any) -> bool:
    return dtype == np.uint8 and len(shape) >= 1


def _environment(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The environment's id, wrappers, arguments and time limit, from our own description or its spec, read as JSON."""
    ours, names = metadata.get(_OURS), ("env_id", "wrappers", "env_kwargs", "max_episode_steps")
    if isinstance(ours, dict) and set(names) <= ours.keys():
        return {name: ours[name] for name in names}
    try:
        spec = json.loads(metadata.get("env_spec") or "{}")
        wrappers = [wrapper["name"] for wrapper in spec.get("additional_wrappers") or ()]
    except (ValueError, TypeError, KeyError, AttributeError):
        spec, wrappers = {}, []
    return {
        "env_id": spec.get("id") or RECORDED,
        "wrappers": wrappers,
        "env_kwargs": spec.get("kwargs") or {},
        "max_episode_steps": spec.get("max_episode_steps"),
    }


def _references(metadata: Mapping[str, Any], where: str) -> References | None:
    """Minari's reference scores; None unless both exist."""
    least, most = (metadata.get(name) for name in _REFERENCES)
    if least is None or most is None:
        return None
    try:
        return References(least, most)
    except DataError as error:
        raise DataError(f"{where!r}: {METADATA}, {' and '.join(_REFERENCES)}: {error}") from None


def _read(group: Any, name: str, space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _read(part(group, name), key, child) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_read(part(group, name), f"{_INDEX}{i}", child) for i, child in enumerate(space.spaces))
    return whole(stored(group, name))


# Export


def export_minari(data: Dataset, path: str | Path, dataset_id: str) -> None:
    """Writes data as a Minari set, which `minari.MinariDataset(path / "data")` reads.

    Args:
      data: numeric data; see `check_exportable`.
      path: the folder of the set, which must not exist yet.
      dataset_id: the id of the set, such as ``pole/expert-v0``.

    Raises:
      DataError: the id is not valid in Minari, Minari would change a field, or the folder exists.
      MissingExtraError: h5py or minari is not installed.
    """
    check_id(dataset_id)
    h5py = import_extra("h5py", "data", "writing a Minari set")
    serialization = import_extra("minari.serialization", "data", "writing a Minari set")
    check_exportable(data)
    path = Path(path).expanduser()
    env, references = data.about["env"], references_of(data.about)
    space = observation_space(env["observation"])
    with Scratch(path) as scratch:
        folder = scratch.folder / "data"
        folder.mkdir()
        with h5py.File(folder / MAIN, "w", track_order=True) as file:
            for number, episode in enumerate(episodes_of(data)):
                _write_episode(file, number, episode, space)
        metadata = {
            "total_episodes": len(data.end),
            "total_steps": len(data),
            "data_format": "hdf5",
            "observation_space": serialization.serialize_space(space),
            "action_space": serialization.serialize_space(action_space(env["env_action"])),
            "dataset_id": dataset_id,
            "minari_version": _VERSION,
            "dataset_size": round((folder / MAIN).stat().st_size / 1e6, 1),
            _OURS: dict(env),
        }
        if references is not None:
            metadata |= dict(zip(_REFERENCES, (references.random, references.expert), strict=True))
        (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
        scratch.finish()


def check_id(dataset_id: str) -> None:
    """Refuses an id that is not valid in Minari.

    Raises:
      DataError: the id is not valid; describes the form of a valid id.
    """
    if not _ID.fullmatch(dataset_id):
        raise DataError(
            f"{dataset_id!r} is not the id of a Minari set: expected letters, digits, - and _ with a version at the "
            "end, optionally after names of folders, such as pole/expert-v0"
        )


def check_exportable(data: Dataset) -> None:
    """Refuses data that Minari would change.

    Raises:
      DataError: Minari would change a field; names it and the change.
    """
    for leaf in observation_leaves(data.about["env"]["observation"]):
        name = f"observation {leaf.path!r}" if leaf.path else "observation"
        values = data.obs[leaf.path]
        if values.dtype == np.uint8:
            raise DataError(f"{name} is uint8 {values.shape[1:]}: Minari stores it as JPEG, which changes it")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(f"{name} holds NaN or infinity, which Minari's readers drop")
        if leaf.is_mask and leaf.path != "action_mask":
            raise DataError(f"{name} is an action mask, which Minari cannot distinguish from other bits here")


def _write_episode(file: Any, number: int, episode: Episode, space: spaces.Space[Any]) -> None:
    group = file.create_group(f"episode_{number}")
    group.attrs["id"], group.attrs["total_steps"] = number, len(episode)
    whole = {path: np.concatenate([values, episode.final_obs[path][None]]) for path, values in episode.obs.items()}
    _write(group, "observations", whole, space, "")
    last = np.arange(len(episode)) == len(episode) - 1
    arrays = {
        "actions": episode.action,
        "rewards": episode.reward,
        "terminations": last & episode.terminated,
        "truncations": last & episode.truncated,
    }
    for name, values in arrays.items():
        group.create_dataset(name, data=values)


def _write(group: Any, name: str, arrays: Mapping[str, Array], space: spaces.Space[Any], path: str) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = group.create_group(name)
        begin = "" if isinstance(space, spaces.Dict) else _INDEX
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child in items:
            _write(inner, f"{begin}{key}", arrays, child, f"{path}.{key}" if path else str(key))
        return
    group.create_dataset(name, data=arrays[path])
