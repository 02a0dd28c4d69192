"""The formats of recorded data: minding's own, D4RL's and Minari's. Reading runs no code and downloads nothing.

Each format is a `Source` in `FORMATS`. HDF5 files are read and written with h5py, and Minari's spaces with Minari's own
functions; no environment is imported or created.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.checkpoint.manifest import MANIFEST
from minding.engine.checkpoint.store import MISFITS, first_line
from minding.engine.data.actions import ActionAdapter
from minding.engine.data.arrays import as_flags, flag_of_last_step, rewards_of, without_column
from minding.engine.data.data_hints import HDF5, MINARI, OF_ARRAYS
from minding.engine.data.dataset import Dataset, check_dataset, episodes_of, joined, load_dataset
from minding.engine.data.description import check_parts
from minding.engine.data.episode import RECORDED, Episode
from minding.engine.data.inferred_spaces import box_of, choices, fitted, unlimited
from minding.engine.data.observation import observation_leaves
from minding.engine.data.references import References, references_of
from minding.engine.data.scratch import Scratch
from minding.engine.errors import DamagedDataError, DataError, MindingError, ShapeError, SpaceError, few
from minding.engine.files import read_bounded
from minding.engine.paths import expanded
from minding.engine.process.packages import import_extra
from minding.engine.types import Array
from minding.envs.recorded_spec import action_space, observation_space
from minding.envs.spaces.actions import JoinedActions, describe_actions
from minding.envs.spaces.layout import ObsLayout
from minding.envs.spec import describe_observation

LARGEST = 1 << 30
"""Most bytes of an episode that is read from a file."""
AS_A_WHOLE = "an episode is read as a whole and may have at most 1.1 GB"


_DAMAGE = (OSError, RuntimeError, *MISFITS)
"""What HDF5 and Python raise for contents that are not what their reader expects."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what reading a damaged source raises into a DamagedDataError."""
    try:
        yield
    except MindingError:
        raise
    except _DAMAGE as error:
        raise DamagedDataError(f"{str(path)!r} is damaged: {first_line(error)}") from error


@dataclasses.dataclass(frozen=True)
class SourceOptions:
    """The options of `minding.training.conversion.open_source`."""

    horizon: int | None = None
    env: Mapping[str, Any] | None = None
    action_low: Any = None
    action_high: Any = None


class Source(abc.ABC):
    """Recorded data in one format, opened by ``Source(path, options)``."""

    path: Path
    env: Mapping[str, Any]
    dropped = shortened = ambiguous = 0
    _redescribed = False

    @abc.abstractmethod
    def __init__(self, path: Path, options: SourceOptions) -> None: ...

    @staticmethod
    @abc.abstractmethod
    def fits(path: Path) -> bool:
        """Whether there are data in this format."""

    @property
    def references(self) -> References | None:
        return None

    @abc.abstractmethod
    def read(self) -> Iterator[Episode | ValueError]:
        """The episodes as they are stored, in order, see `attempt`."""

    def described_as(self, env: Mapping[str, Any]) -> Source:
        """The source with another description of its environment; episodes outside of its spaces are damaged."""
        self.env, self._redescribed = env, True
        return self

    def episodes(self) -> Iterator[Episode | ValueError]:
        """The episodes, in order, in the dtypes of `env`; a damaged episode is replaced by a ValueError."""
        self.dropped = self.ambiguous = 0
        with reading(self.path):
            for episode in self.read():
                if self._redescribed and isinstance(episode, Episode):
                    try:
                        episode = fitted(episode, self.env)
                        check_dataset(joined([episode], {"env": self.env}), single=True, limits=True)
                    except ValueError as error:
                        yield error
                        continue
                yield episode


def attempt(read: Callable[..., Episode | None], *place: Any, name: str = "") -> Iterator[Episode | ValueError]:
    """The episode at a place, unless no row of it is kept; a ValueError if it is damaged."""
    try:
        episode = read(*place)
    except KeyError as error:
        yield ShapeError(f"it lacks a part ({error.args[0]})")
    except ValueError as error:
        yield error
    except _DAMAGE as error:
        yield ShapeError(f"{name}cannot be read ({first_line(error)})")
    else:
        if episode is not None:
            yield episode


class OwnSource(Source):
    """A folder in minding's own format."""

    def __init__(self, path: Path, options: SourceOptions) -> None:
        self.path, self._data = path, load_dataset(path, mapped=True, values=False)
        self.env = self._data.about["env"]
        # The data no longer say whether the rows of time-outs were left out.
        self.shortened = int("converted" in self._data.about)

    @staticmethod
    def fits(path: Path) -> bool:
        return (path / MANIFEST).exists()

    @property
    def references(self) -> References | None:
        return references_of(self._data.about)

    def read(self) -> Iterator[Episode | ValueError]:
        return episodes_of(self._data)


class Spaces:
    """Converts an environment's arrays to the form of recorded data."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self._layout, self.action = ObsLayout(observation, action), action
        self._described = describe_actions(action, rescale=True)
        self._adapter = ActionAdapter(self._described)
        self.description = {"observation": describe_observation(observation, action), "env_action": self._described}

    def observations(self, obs: Any, count: int) -> dict[str, Array]:
        """The observations by path, ``(count, ...)``."""
        return {leaf.path: _cast(leaf.coerce(obs, (count,)), leaf.dtype) for leaf in self._layout.leaves}

    def actions(self, action: Any) -> Array:
        """The actions in the dtype of the space, with unchanged values; those of a Tuple or Dict are joined to rows."""
        if isinstance(self.action, JoinedActions) and not isinstance(action, np.ndarray):
            return self.action.codec.join(action, _lead(action))
        if action.dtype == np.bool_ and not self._adapter.continuous:
            action = action.astype(np.int64)
        shape, kinds = (len(action), *self._adapter.shape), "f" if self._adapter.continuous else "iu"
        if action.shape == (*shape, 1):
            action = action.reshape(shape)
        if action.shape != shape or action.dtype.kind not in kinds:
            kind = "float" if kinds == "f" else "integer"
            raise ShapeError(f"actions: expected {kind} {shape}, got {action.dtype} {action.shape}")
        return _cast(action, self._adapter.dtype)


def _lead(tree: Any) -> tuple[int, ...]:
    """The leading axis of the arrays in a tree, the number of steps."""
    while isinstance(tree, Mapping | tuple):
        tree = next(iter(tree.values() if isinstance(tree, Mapping) else tree))
    return np.shape(tree)[:1]


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    # Numbers that become infinite are reported where numbers are checked.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype)


def open_hdf5(path: Path) -> Any:
    """Opens an HDF5 file for reading."""
    h5py = import_extra("h5py", "data", "reading HDF5")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DamagedDataError(f"{str(path)!r} {_unreadable(path, str(error))}") from None


def _unreadable(path: Path, reason: str) -> str:
    """The fault of a file that HDF5 cannot open, in place of the library's own message."""
    if not path.is_file():
        return "cannot be read: there is no such file"
    size, whole = path.stat().st_size, re.search(r"truncated file: .*stored_eof = (\d+)", reason)
    if whole is not None:
        return f"is cut off: it has {size:,} of its {int(whole[1]):,} bytes; copy or download it again"
    if "signature not found" in reason:
        return f"is not an HDF5 file ({size:,} bytes); copy or download it again if it should be one"
    return f"cannot be read as HDF5 ({reason[:100]})"


def part(group: Any, name: str) -> Any:
    """The entry of a group of an HDF5 file under a name."""
    h5py = import_extra("h5py", "data", "reading HDF5")
    link = group.get(name, getlink=True)
    if link is None:
        raise KeyError(name)
    if not isinstance(link, h5py.HardLink):
        raise ShapeError(f"{name} is a link, which may lead to another file: only arrays of the file itself are read")
    return group[name]


def stored(group: Any, name: str) -> Any:
    """An array in a group of an HDF5 file, not yet read."""
    found = part(group, name)
    h5py = import_extra("h5py", "data", "reading HDF5")
    if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
        raise ShapeError(f"{name}: expected an array in the file itself")
    return found


def whole(array: Any) -> Array:
    """Reads an array of a file completely."""
    if array.nbytes > LARGEST:
        name = array.name.rpartition("/")[2]
        raise ShapeError(f"{name} has {array.nbytes / 1e9:,.1f} GB: {AS_A_WHOLE}; split it into several episodes")
    try:
        values: Array = np.asarray(array[()])
    except OSError as error:
        raise ShapeError(f"{array.name.rpartition('/')[2]} cannot be read ({str(error)[:100]})") from None
    return values


# D4RL

NEEDED = ("observations", "actions", "rewards", "terminals")
_BLOCK = 1 << 20
"""Rows of flags that are read at a time."""
_SAME = 1e-5
"""Tolerance between a stored successor and the next row, relative to the number or, below 1, absolute."""


class D4RLSource(Source):
    """One HDF5 file in D4RL's format, with a row per step (Fu et al., 2020, https://arxiv.org/abs/2004.07219).

    The file holds the arrays `observations`, `actions`, `rewards` and `terminals`, usually `timeouts` and sometimes
    `next_observations`. These rules turn rows into episodes:

    - A row whose `terminals` is set ends its episode; no value is bootstrapped from its next observation. Without
      `next_observations` that observation is not in the file, and the row's own observation replaces it.
    - A row whose `timeouts` is set ends its episode, which would have continued. It is kept only if its next
      observation is known from `next_observations`; otherwise it is dropped, and its observation is the next one of the
      row before.
    - If the last row of the file does not end an episode, it is treated as if its `timeouts` were set, but its episode
      is neither terminated nor truncated: recording ended there.
    - Without `timeouts` a horizon must be given: an episode of that many steps that does not terminate has timed out.
    - Dropped rows are counted.

    The row after an end is never its next observation. If the file has `next_observations`, they are compared with the
    rows that follow: an episode in which they differ is damaged.

    Without a description of the environment the spaces are derived from the arrays, and real-valued actions have no
    limits.
    """

    def __init__(self, path: Path, options: SourceOptions) -> None:
        self.path = path
        self._file = open_hdf5(path)
        missing = [name for name in NEEDED if name not in self._file]
        if missing:
            found = few(sorted(self._file)) or "nothing"
            raise DataError(
                f"{str(path)!r} is not in D4RL's format: it lacks {', '.join(missing)}, and has {found}: {OF_ARRAYS}"
            )
        names = [*NEEDED, *(name for name in ("timeouts", "next_observations") if name in self._file)]
        try:
            self._arrays = {name: stored(self._file, name) for name in names}
        except ShapeError as error:
            raise DataError(f"{str(path)!r}: {error}") from None
        # The row of a time-out is left out, unless its next observation is known.
        self.shortened = int("next_observations" not in self._arrays)
        self._rows = self._check_lengths()
        self._horizon = options.horizon
        self._check_horizon()
        described = options.env or {
            "env_action": self._actions(options.action_low, options.action_high),
            "observation": box_of(self._arrays["observations"]),
        }
        self._spaces = Spaces(observation_space(described["observation"]), action_space(described["env_action"]))
        self.env = options.env or {
            **{"env_id": RECORDED, "wrappers": [], "env_kwargs": {}, "max_episode_steps": self._horizon},
            **self._spaces.description,
        }

    @staticmethod
    def fits(path: Path) -> bool:
        return path.is_file() and path.suffix in HDF5

    def _check_horizon(self) -> None:
        path, horizon = self.path, self._horizon
        if horizon is None and "timeouts" not in self._arrays:
            raise DataError(
                f"{str(path)!r} has no `timeouts`: nothing tells where episodes that did not terminate ended; give "
                f"--horizon STEPS, the time limit of its environment, or {OF_ARRAYS}"
            )
        if horizon is not None and "timeouts" in self._arrays:
            raise DataError(f"{str(path)!r} has `timeouts`: leave out --horizon, which is only for files without them")

    def _check_lengths(self) -> int:
        lengths = {name: array.shape[0] if array.ndim else 0 for name, array in self._arrays.items()}
        if len(set(lengths.values())) != 1:
            rows = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise DamagedDataError(f"{str(self.path)!r}: its arrays differ in rows: {rows}")
        if not lengths["actions"]:
            raise DamagedDataError(f"{str(self.path)!r} holds no rows")
        return int(lengths["actions"])

    def _actions(self, action_low: Any, action_high: Any) -> dict[str, Any]:
        """The description of the action space, derived from the array."""
        action = self._arrays["actions"]
        if action.dtype.kind not in "biu":
            return unlimited(action.shape[1:])
        # Before all actions are read, this checks that episodes end.
        collections.deque(self._ends(), maxlen=0)
        found: list[Array] = []
        for begin in range(0, self._rows, _BLOCK):
            part = action[begin : begin + _BLOCK].astype(np.int64)
            part = without_column(part)
            each = np.stack([*found, part.min(axis=0), part.max(axis=0)])
            found = [each.min(axis=0), each.max(axis=0)]
        low, high = found
        if action.dtype.kind == "b":
            low, high = np.zeros_like(low), np.ones_like(high)
        try:
            return choices(np.asarray(low), np.asarray(high), action_low, action_high)
        except ValueError as error:
            raise DamagedDataError(f"{str(self.path)!r}: {error}") from None

    def read(self) -> Iterator[Episode | ValueError]:
        for rows in self._ends():
            yield from attempt(self._episode, *rows, name=f"rows {rows[0]} to {rows[1]} ")

    def _ends(self) -> Iterator[tuple[int, int, bool, bool]]:
        """First and last row of each episode, and whether it terminated or timed out, read block by block."""
        start, horizon = 0, self._horizon or 0
        # The most rows of an episode that can be read as a whole.
        longest = max(LARGEST // sum(array.nbytes // self._rows for array in self._arrays.values()), 1)
        for begin in range(0, self._rows, _BLOCK):
            stop = min(begin + _BLOCK, self._rows)
            terminated = self._flags("terminals", begin, stop)
            timed_out = self._flags("timeouts", begin, stop)
            self.ambiguous += int((terminated & timed_out).sum())
            for end in [*(np.flatnonzero(terminated | timed_out) + begin).tolist(), stop]:
                while 0 < horizon <= end - start:
                    yield start, start + horizon - 1, False, True
                    start += horizon
                if end - start > longest:
                    raise DamagedDataError(
                        f"{str(self.path)!r}: from row {start:,} on no episode ends within {longest:,} rows: "
                        f"{AS_A_WHOLE}; set `terminals` or `timeouts` at the last row of each, or leave `timeouts` out "
                        "of the file and give --horizon STEPS"
                    )
                if end < stop:
                    done = bool(terminated[end - begin])
                    yield start, end, done, not done
                    start = end + 1
        if start < self._rows:
            yield start, self._rows - 1, False, False

    def _flags(self, name: str, begin: int, stop: int) -> Array:
        """Flags of the rows from `begin` to `stop`, bool ``(stop - begin,)``; false if the file has no such flags."""
        if name not in self._arrays:
            return np.zeros(stop - begin, np.bool_)
        try:
            flags = as_flags(self._arrays[name][begin:stop].reshape(stop - begin), name, begin, "row")
        except (OSError, ValueError) as error:
            raise DamagedDataError(f"{str(self.path)!r}: {name} cannot be used: {str(error)[:200]}") from None
        return flags

    def _episode(self, start: int, end: int, terminated: bool, timed_out: bool) -> Episode | None:
        """The episode of the rows from `start` to `end`; None if no row is kept."""
        count = end + 1 - start
        obs = self._spaces.observations(self._arrays["observations"][start : end + 1], count)
        final = {path: values[-1] for path, values in obs.items()}
        kept = count
        if "next_observations" in self._arrays:
            after = self._spaces.observations(self._arrays["next_observations"][start : end + 1], count)
            for path, values in obs.items():
                _compare(values[1:], after[path][:-1], start)
            final = {path: values[-1] for path, values in after.items()}
        elif not terminated:
            kept, self.dropped = count - 1, self.dropped + 1
        if not kept:
            return None
        rows = slice(start, start + kept)
        return Episode(
            obs={path: values[:kept] for path, values in obs.items()},
            final_obs=final,
            action=self._spaces.actions(self._arrays["actions"][rows]),
            reward=rewards_of(self._arrays["rewards"][rows]),
            terminated=terminated,
            truncated=timed_out,
        )


def _compare(following: Array, stored: Array, start: int) -> None:
    """Raises ShapeError if the stored successor of a row is not the row that follows."""
    apart = np.abs(following.astype(np.float64) - stored) > _SAME * np.maximum(1, np.abs(following))
    if apart.any():
        row = start + int(np.argmax(apart.reshape(len(apart), -1).any(axis=1)))
        raise ShapeError(
            f"next_observations of row {row} is not the observation of row {row + 1}, and row {row} ends no episode"
        )


# Minari

MAIN = "main_data.hdf5"
_OURS = "minding"
"""Key of the metadata that holds our own description of the environment."""
_MAX_METADATA = 1 << 24
_INDEX = "_index_"
_VERSION = "0.5.3"
_ID = re.compile(r"(?:[-\w][-\w/]*[-\w]/)?[-\w]+-v\d+", re.ASCII)
_REFERENCES = "ref_min_score", "ref_max_score"
"""Keys of the metadata: the returns that score 0 and 100."""


class MinariSource(Source):
    """A Minari set with numeric observations: its folder, or the folder `data` in it."""

    def __init__(self, path: Path, options: SourceOptions) -> None:
        self.path = path / "data" if (path / "data" / MINARI).exists() else path
        metadata = _metadata(self.path)
        try:
            observation, action = (_space(metadata, f"{kind}_space") for kind in ("observation", "action"))
            _refuse_images(observation, str(path))
            # Actions of a Tuple or Dict become rows.
            joined = JoinedActions(action) if isinstance(action, spaces.Tuple | spaces.Dict) else action
            self._spaces = Spaces(observation, joined)
        except SpaceError as error:
            raise DataError(f"{str(path)!r}: {error}") from None
        self._observation, self._action = observation, action
        self._file = open_hdf5(self.path / MAIN)
        self._references = _references(metadata, str(path))
        self.env = {**_environment(metadata), **self._spaces.description}

    @staticmethod
    def fits(path: Path) -> bool:
        return any((path / inside / MINARI).exists() for inside in (".", "data"))

    @property
    def references(self) -> References | None:
        return self._references

    def read(self) -> Iterator[Episode | ValueError]:
        found = (re.fullmatch(r"episode_(\d{1,9})", name) for name in self._file)
        for number in sorted(int(each[1]) for each in found if each):
            yield from attempt(self._episode, number)

    def _episode(self, number: int) -> Episode:
        group = part(self._file, f"episode_{number}")
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
            action=self._spaces.actions(_read(group, "actions", self._action)),
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
        )


def _metadata(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bounded(path / MINARI, _MAX_METADATA))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise DataError(f"{str(path)!r} is not a Minari set: {MINARI}: {reason}") from None
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
    for _, path, leaf in _leaves(space):
        if isinstance(leaf, spaces.Text) or (isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and leaf.shape):
            what = "texts" if isinstance(leaf, spaces.Text) else "images, which Minari stores as JPEG"
            raise DataError(f"{where!r}: observation {path or '(root)'} holds {what}: only numbers are converted")


def _leaves(space: spaces.Space[Any], name: str = "", path: str = "") -> Iterator[tuple[str, str, spaces.Space[Any]]]:
    """The leaves of a space, each with its name in a file and its path."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        begin = "" if isinstance(space, spaces.Dict) else _INDEX
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child in items:
            yield from _leaves(child, f"{name}/{begin}{key}", f"{path}.{key}" if path else str(key))
    else:
        yield name, path, space


def _environment(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The environment's id, wrappers, arguments and time limit, from our own description or its spec, read as JSON."""
    ours, names = metadata.get(_OURS), ("env_id", "wrappers", "env_kwargs", "max_episode_steps")
    if isinstance(ours, dict) and set(names) <= ours.keys():
        check_parts(ours)
        return {name: ours[name] for name in names}
    try:
        spec = json.loads(metadata.get("env_spec") or "{}")
        wrappers = [wrapper["name"] for wrapper in spec.get("additional_wrappers") or ()]
        found = {
            "env_id": spec.get("id") or RECORDED,
            "wrappers": wrappers,
            "env_kwargs": spec.get("kwargs") or {},
            "max_episode_steps": spec.get("max_episode_steps"),
        }
        check_parts(found)
    except MISFITS:
        return {"env_id": RECORDED, "wrappers": [], "env_kwargs": {}, "max_episode_steps": None}
    return found


def _references(metadata: Mapping[str, Any], where: str) -> References | None:
    """Minari's reference scores; None unless both exist."""
    least, most = (metadata.get(name) for name in _REFERENCES)
    if least is None or most is None:
        return None
    try:
        return References(least, most)
    except DataError as error:
        raise DataError(f"{where!r}: {MINARI}, {' and '.join(_REFERENCES)}: {error}") from None


def _read(group: Any, name: str, space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _read(part(group, name), key, child) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_read(part(group, name), f"{_INDEX}{i}", child) for i, child in enumerate(space.spaces))
    return whole(stored(group, name))


def export_minari(data: Dataset, path: str | Path, dataset_id: str) -> None:
    """Writes data as a Minari set, which `minari.MinariDataset(path / "data")` reads."""
    check_id(dataset_id)
    h5py = import_extra("h5py", "data", "writing a Minari set")
    serialization = import_extra("minari.serialization", "data", "writing a Minari set")
    check_exportable(data)
    path = expanded(path)
    env, references = data.about["env"], references_of(data.about)
    space = observation_space(env["observation"])
    with Scratch(path) as scratch:
        folder = scratch.folder / "data"
        folder.mkdir()
        with h5py.File(folder / MAIN, "w", track_order=True) as file:
            for number, episode in enumerate(episodes_of(data)):
                _write_episode(file, number, episode, space, action_space(env["env_action"]))
        metadata = {
            "total_episodes": len(data.end),
            "total_steps": len(data),
            "data_format": "hdf5",
            "observation_space": serialization.serialize_space(space),
            "action_space": serialization.serialize_space(_tree_of(action_space(env["env_action"]))),
            "dataset_id": dataset_id,
            "minari_version": _VERSION,
            "dataset_size": round((folder / MAIN).stat().st_size / 1e6, 1),
            _OURS: dict(env),
        }
        if references is not None:
            metadata |= dict(zip(_REFERENCES, (references.random, references.expert), strict=True))
        (folder / MINARI).write_text(json.dumps(metadata), encoding="utf-8")
        scratch.finish()


def check_id(dataset_id: str) -> None:
    """Refuses an id that is not valid in Minari."""
    if not _ID.fullmatch(dataset_id):
        raise DataError(
            f"{dataset_id!r} is not the id of a Minari set: expected letters, digits, - and _ with a version at the "
            "end, optionally after names of folders, such as pole/expert-v0"
        )


def check_exportable(data: Dataset) -> None:
    """Refuses data that Minari would change."""
    for leaf in observation_leaves(data.about["env"]["observation"]):
        name = f"observation {leaf.path!r}" if leaf.path else "observation"
        values = data.obs[leaf.path]
        if values.dtype == np.uint8:
            raise DataError(f"{name} is uint8 {values.shape[1:]}: Minari stores it as JPEG, which changes it")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(f"{name} holds NaN or infinity, which Minari's readers drop")
        if leaf.is_mask and leaf.path != "action_mask":
            raise DataError(f"{name} is an action mask, which Minari cannot distinguish from other bits here")


def _tree_of(action: spaces.Space[Any]) -> spaces.Space[Any]:
    return action.tree if isinstance(action, JoinedActions) else action


def _write_episode(
    file: Any, number: int, episode: Episode, space: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    group = file.create_group(f"episode_{number}")
    group.attrs["id"], group.attrs["total_steps"] = number, len(episode)
    whole = {path: np.concatenate([values, episode.final_obs[path][None]]) for path, values in episode.obs.items()}
    actions = action.codec.named(episode.action) if isinstance(action, JoinedActions) else {"": episode.action}
    last = np.arange(len(episode)) == len(episode) - 1
    arrays = {
        **{name: whole[path] for name, path, _ in _leaves(space, "observations")},
        **{name: actions[path] for name, path, _ in _leaves(_tree_of(action), "actions")},
        "rewards": episode.reward,
        "terminations": last & episode.terminated,
        "truncations": last & episode.truncated,
    }
    for name, values in arrays.items():
        group.create_dataset(name, data=values)


FORMATS: tuple[type[Source], ...] = (D4RLSource, OwnSource, MinariSource)
