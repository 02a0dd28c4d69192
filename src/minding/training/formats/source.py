"""Sources of recorded data, with a description of the environment and episodes; the own format, and helpers."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.actions import ActionAdapter
from minding.engine.data.dataset import check_dataset, episodes_of, joined, load_dataset
from minding.engine.data.episode import Episode
from minding.engine.data.inferred_spaces import fitted
from minding.engine.data.references import References, references_of
from minding.engine.errors import DamagedDataError, ShapeError
from minding.engine.process.installed import import_extra
from minding.engine.types import Array
from minding.envs.spaces.actions import describe_actions
from minding.envs.spaces.layout import ObsLayout
from minding.envs.spec import describe_observation

LARGEST = 1 << 30
"""Most bytes of an episode that is read from a file."""
AS_A_WHOLE = "an episode is read as a whole and may have at most 1.1 GB"


class Source(abc.ABC):
    """Recorded data to be converted.

    Attributes:
      path: the source, for messages.
      env: the data's description of their environment, see `engine.data.description.describe`.
      references: the reference returns in the data, if any; DataError if they are not two different finite numbers.
      dropped: number of rows left out so far, because the next observation is not known.
      shortened: number of rows that a truncated episode may lack because they were left out.
      ambiguous: number of episodes so far that are marked as both terminated and timed out; they count as terminated.
    """

    path: Path
    env: Mapping[str, Any]
    dropped = shortened = ambiguous = 0
    _redescribed = False

    @property
    def references(self) -> References | None:
        return None

    @abc.abstractmethod
    def read(self) -> Iterator[Episode | ValueError]:
        """The episodes as they are stored, in order; a damaged episode is replaced by a ValueError."""

    def described_as(self, env: Mapping[str, Any]) -> Source:
        """The source with another description of its environment; episodes outside of its spaces are damaged."""
        self.env, self._redescribed = env, True
        return self

    def episodes(self) -> Iterator[Episode | ValueError]:
        """The episodes, in order, in the dtypes of `env`; a damaged episode is replaced by a ValueError."""
        for episode in self.read():
            if self._redescribed and isinstance(episode, Episode):
                try:
                    episode = fitted(episode, self.env)
                    check_dataset(joined([episode], {"env": self.env}), single=True, limits=True)
                except ValueError as error:
                    yield error
                    continue
            yield episode


class OwnSource(Source):
    """A folder in minding's own format.

    Raises:
      DataError: there are no recorded data, or they are damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._data = path, load_dataset(path, mapped=True, values=False)
        self.env = self._data.about["env"]
        # The data no longer say whether the rows of time-outs were left out.
        self.shortened = int("converted" in self._data.about)

    @property
    def references(self) -> References | None:
        return references_of(self._data.about)

    def read(self) -> Iterator[Episode | ValueError]:
        return episodes_of(self._data)


class Spaces:
    """Converts an environment's arrays to the form of recorded data.

    Args:
      observation, action: the environment's spaces.
    """

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self._layout, self.action = ObsLayout(observation, action), action
        self._described = describe_actions(action, rescale=True)
        self._adapter = ActionAdapter(self._described)
        self.description = {"observation": describe_observation(observation, action), "env_action": self._described}

    def observations(self, obs: Any, count: int) -> dict[str, Array]:
        """The observations by path, ``(count, ...)``.

        Raises:
          ShapeError: the observations do not belong to the space.
        """
        return {leaf.path: _cast(leaf.coerce(obs, (count,)), leaf.dtype) for leaf in self._layout.leaves}

    def actions(self, action: Array) -> Array:
        """The actions in the dtype of the space, with unchanged values.

        Raises:
          ShapeError: the actions do not belong to the space.
        """
        if action.dtype == np.bool_ and not self._adapter.continuous:
            action = action.astype(np.int64)
        shape, kinds = (len(action), *self._adapter.shape), "f" if self._adapter.continuous else "iu"
        if action.shape == (*shape, 1):
            action = action.reshape(shape)
        if action.shape != shape or action.dtype.kind not in kinds:
            kind = "float" if kinds == "f" else "integer"
            raise ShapeError(f"actions: expected {kind} {shape}, got {action.dtype} {action.shape}")
        return _cast(action, self._adapter.dtype)


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    # Numbers that become infinite are reported where numbers are checked.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype)


def open_hdf5(path: Path) -> Any:
    """Opens an HDF5 file for reading.

    Raises:
      DataError: the file cannot be read.
      MissingExtraError: h5py is not installed.
    """
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
    """The entry of a group of an HDF5 file under a name.

    Raises:
      ShapeError: the entry is a link, which may lead to another file.
      KeyError: the group has no such entry.
    """
    h5py = import_extra("h5py", "data", "reading HDF5")
    link = group.get(name, getlink=True)
    if link is None:
        raise KeyError(name)
    if not isinstance(link, h5py.HardLink):
        raise ShapeError(f"{name} is a link, which may lead to another file: only arrays of the file itself are read")
    return group[name]


def stored(group: Any, name: str) -> Any:
    """An array in a group of an HDF5 file, not yet read.

    Raises:
      ShapeError: the entry is not an array, or is stored in another file.
      KeyError: the group has no such entry.
    """
    found = part(group, name)
    h5py = import_extra("h5py", "data", "reading HDF5")
    if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
        raise ShapeError(f"{name}: expected an array in the file itself")
    return found


def whole(array: Any) -> Array:
    """Reads an array of a file completely.

    Raises:
      ShapeError: the array is larger than an episode may be, or cannot be read.
    """
    if array.nbytes > LARGEST:
        name = array.name.rpartition("/")[2]
        raise ShapeError(f"{name} has {array.nbytes / 1e9:,.1f} GB: {AS_A_WHOLE}; split it into several episodes")
    try:
        values: Array = np.asarray(array[()])
    except OSError as error:
        raise ShapeError(f"{array.name.rpartition('/')[2]} cannot be read ({str(error)[:100]})") from None
    return values
