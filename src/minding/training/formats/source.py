"""What a form of recorded data gives: what it says of its environment, and episodes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from minding.engine.data.actions import ActionAdapter
from minding.engine.data.dataset_writer import Episode
from minding.engine.data.references import References
from minding.engine.errors import DamagedDataError, MissingExtraError, ShapeError
from minding.engine.types import Array
from minding.envs.spaces.actions import describe_actions
from minding.envs.spaces.layout import ObsLayout
from minding.envs.spec import describe_observation

LARGEST = 1 << 30
"""Bytes of an episode that is read from a file."""
AS_A_WHOLE = "an episode is read as a whole, and may have 1.1 GB"


class Source(Protocol):
    """Recorded data to be converted.

    Attributes:
      path: for messages.
      env: what the data say of their environment, see `engine.data.dataset.describe`.
      dropped: rows left out so far, because what followed them is not known.
      shortened: of how many rows a truncated episode may lack because they were left out.
      ambiguous: episodes so far whose two ends are both set; they count as terminated.
    """

    env: Mapping[str, Any]

    @property
    def path(self) -> Path: ...

    @property
    def dropped(self) -> int: ...

    @property
    def shortened(self) -> int: ...

    @property
    def ambiguous(self) -> int: ...

    @property
    def references(self) -> References | None:
        """The reference returns that they carry, if any.

        Raises:
          DataError: they are not two different finite numbers.
        """
        ...

    def episodes(self) -> Iterator[Episode | ValueError]:
        """The episodes, in order; in place of a damaged one what is wrong with it."""
        ...


class Spaces:
    """Turns arrays as an environment gives them into those of recorded data.

    Args:
      observation, action: the environment's spaces.
    """

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self._layout, self.action = ObsLayout(observation, action), action
        self._described = describe_actions(action, rescale=True)
        self._adapter = ActionAdapter(self._described)
        self.description = {"observation": describe_observation(observation, action), "env_action": self._described}

    def observations(self, obs: Any, count: int) -> dict[str, Array]:
        """By path, ``(count, ...)``.

        Raises:
          ShapeError: they are not of the space.
        """
        return {leaf.path: _cast(leaf.coerce(obs, (count,)), leaf.dtype) for leaf in self._layout.leaves}

    def actions(self, action: Array) -> Array:
        """In the dtype of the space, unchanged in value.

        Raises:
          ShapeError: they are not of the space.
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
    # What becomes infinite is told of as such where the numbers are checked.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype)


def reward_of(values: Array) -> Array:
    """Rewards as data hold them."""
    return _cast(values, np.dtype(np.float32))


def open_hdf5(path: Path) -> Any:
    """An HDF5 file for reading.

    Raises:
      DataError: it cannot be read.
      MissingExtraError: h5py is not installed.
    """
    h5py = extra_module("h5py", "data", "reading HDF5")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DamagedDataError(f"{str(path)!r} {_unreadable(path, str(error))}") from None


def _unreadable(path: Path, reason: str) -> str:
    """What is wrong with a file that HDF5 does not open, in place of its library's own words."""
    if not path.is_file():
        return "cannot be read: there is no such file"
    size, whole = path.stat().st_size, re.search(r"truncated file: .*stored_eof = (\d+)", reason)
    if whole is not None:
        return f"is cut off: it has {size:,} of its {int(whole[1]):,} bytes; copy or download it again"
    if "signature not found" in reason:
        return f"is not an HDF5 file ({size:,} bytes); copy or download it again if it should be one"
    return f"cannot be read as HDF5 ({reason[:100]})"


def part(group: Any, name: str) -> Any:
    """What a group of an HDF5 file holds itself under a name.

    Raises:
      ShapeError: it is a link, which may lead to another file.
      KeyError: there is nothing.
    """
    h5py = extra_module("h5py", "data", "reading HDF5")
    link = group.get(name, getlink=True)
    if link is None:
        raise KeyError(name)
    if not isinstance(link, h5py.HardLink):
        raise ShapeError(f"{name} is a link, which may lead to another file: only arrays of the file itself are read")
    return group[name]


def stored(group: Any, name: str) -> Any:
    """An array in a group of an HDF5 file, not read yet.

    Raises:
      ShapeError: it is something else, or lies in another file.
      KeyError: there is none.
    """
    found = part(group, name)
    h5py = extra_module("h5py", "data", "reading HDF5")
    if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
        raise ShapeError(f"{name}: expected an array in the file itself")
    return found


def whole(array: Any) -> Array:
    """All of an array of a file.

    Raises:
      ShapeError: it is larger than an episode may be, or cannot be read.
    """
    if array.nbytes > LARGEST:
        name = array.name.rpartition("/")[2]
        raise ShapeError(f"{name} has {array.nbytes / 1e9:,.1f} GB: {AS_A_WHOLE}; divide it into several")
    try:
        values: Array = np.asarray(array[()])
    except OSError as error:
        raise ShapeError(f"{array.name.rpartition('/')[2]} cannot be read ({str(error)[:100]})") from None
    return values


def extra_module(name: str, extra: str, purpose: str) -> ModuleType:
    """A module of an optional package.

    Raises:
      MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(name.partition(".")[0], extra, purpose) from None
