"""D4RL's format (Fu et al., 2020, https://arxiv.org/abs/2004.07219): one HDF5 file with a row per step.

The file holds the arrays `observations`, `actions`, `rewards` and `terminals`, usually `timeouts` and sometimes
`next_observations`. These rules turn rows into episodes:

- A row whose `terminals` is set ends its episode; no value is bootstrapped from its next observation. Without
  `next_observations` that observation is not in the file, and the row's own observation replaces it.
- A row whose `timeouts` is set ends its episode, which would have continued. It is kept only if its next observation is
  known from `next_observations`; otherwise it is dropped, and its observation is the next one of the row before.
- If the last row of the file does not end an episode, it is treated as if its `timeouts` were set, but its episode is
  neither terminated nor truncated: recording ended there.
- Without `timeouts` a horizon must be given: an episode of that many steps that does not terminate has timed out.
- Dropped rows are counted.

The row after an end is never its next observation. If the file has `next_observations`, they are compared with the rows
that follow: an episode in which they differ is damaged.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.data.arrays import as_flags, rewards_of, without_column
from minding.engine.data.data_hints import OF_ARRAYS
from minding.engine.data.episode import RECORDED, Episode
from minding.engine.data.inferred_spaces import box_of, choices, unlimited
from minding.engine.errors import DamagedDataError, DataError, ShapeError, few
from minding.engine.types import Array
from minding.envs.recorded import action_space, observation_space
from minding.training.formats.source import AS_A_WHOLE, LARGEST, Source, Spaces, open_hdf5, stored

NEEDED = ("observations", "actions", "rewards", "terminals")
_BLOCK = 1 << 20
"""Rows of flags that are read at a time."""
_SAME = 1e-5
"""Tolerance between a stored successor and the next row, relative to the number or, below 1, absolute."""


class D4RLSource(Source):
    """A file in D4RL's format, see the module.

    Args:
      path: the file.
      horizon: steps after which an episode times out, for a file without `timeouts`.
      env: the description of the environment (see `engine.data.description`); without it the spaces are derived
        from the arrays, and real-valued actions have no limits.
      action_low, action_high: smallest and largest integer action, if `env` is not given.

    Raises:
      DataError: the file has another format, or the horizon is missing or has no effect.
      DamagedDataError: the arrays differ in their number of rows, no episode ends, or actions do not count from 0.
      MissingExtraError: h5py is not installed.
    """

    def __init__(
        self,
        path: Path,
        horizon: int | None = None,
        env: Mapping[str, Any] | None = None,
        action_low: Any = None,
        action_high: Any = None,
    ) -> None:
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
        self._check_horizon(horizon)
        self._horizon = horizon
        made = _made_of(self._arrays, self._actions(action_low, action_high)) if env is None else env
        self._spaces = Spaces(observation_space(made["observation"]), action_space(made["env_action"]))
        named: dict[str, Any] = {"env_id": RECORDED, "wrappers": [], "env_kwargs": {}, "max_episode_steps": horizon}
        self.env: Mapping[str, Any] = env or {**named, **self._spaces.description}

    def _check_horizon(self, horizon: int | None) -> None:
        path = self.path
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
            told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise DamagedDataError(f"{str(self.path)!r}: its arrays differ in rows: {told}")
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
        """See `Source`.

        Raises:
          DamagedDataError: an episode is longer than can be read as a whole, or the ends cannot be read.
        """
        self.dropped = 0
        for start, end, terminated, timed_out in self._ends():
            try:
                episode = self._episode(start, end, terminated, timed_out)
            except OSError as error:
                yield ShapeError(f"rows {start} to {end} cannot be read ({str(error)[:100]})")
            except ValueError as error:
                yield error
            else:
                if episode is not None:
                    yield episode

    def _ends(self) -> Iterator[tuple[int, int, bool, bool]]:
        """First and last row of each episode, and whether it terminated or timed out, read block by block."""
        self.ambiguous = start = 0
        longest = self._longest_episode()
        for begin in range(0, self._rows, _BLOCK):
            stop = min(begin + _BLOCK, self._rows)
            terminated = self._flags("terminals", begin, stop)
            timed_out = self._flags("timeouts", begin, stop)
            self.ambiguous += int((terminated & timed_out).sum())
            for end in (np.flatnonzero(terminated | timed_out) + begin).tolist():
                for first, last in self._timed(start, end):
                    yield first, last, False, True
                    start = last + 1
                _refuse_endless(str(self.path), start, end, longest)
                done = bool(terminated[end - begin])
                yield start, end, done, not done
                start = end + 1
            for first, last in self._timed(start, stop):
                yield first, last, False, True
                start = last + 1
            _refuse_endless(str(self.path), start, stop, longest)
        if start < self._rows:
            yield start, self._rows - 1, False, False

    def _timed(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """First and last row of each episode of full horizon that begins at `start` or later and ends before `end`."""
        if self._horizon is not None:
            for first in range(start, end - self._horizon + 1, self._horizon):
                yield first, first + self._horizon - 1

    def _flags(self, name: str, begin: int, stop: int) -> Array:
        """Flags of the rows from `begin` to `stop`, bool ``(stop - begin,)``; false if the file has no such flags."""
        if name not in self._arrays:
            return np.zeros(stop - begin, np.bool_)
        try:
            flags = as_flags(self._arrays[name][begin:stop].reshape(stop - begin), name, begin, "row")
        except (OSError, ValueError) as error:
            raise DamagedDataError(f"{str(self.path)!r}: {name} cannot be used: {str(error)[:200]}") from None
        return flags

    def _longest_episode(self) -> int:
        """The most rows of an episode that can be read as a whole."""
        return max(LARGEST // sum(array.nbytes // self._rows for array in self._arrays.values()), 1)

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


def _refuse_endless(path: str, start: int, end: int, longest: int) -> None:
    if end - start > longest:
        raise DamagedDataError(
            f"{path!r}: from row {start:,} on no episode ends within {longest:,} rows: {AS_A_WHOLE}; set `terminals` "
            "or `timeouts` at the last row of each, or leave `timeouts` out of the file and give --horizon STEPS"
        )


def _compare(following: Array, stored: Array, start: int) -> None:
    """Raises ShapeError if the stored successor of a row is not the row that follows."""
    apart = np.abs(following.astype(np.float64) - stored) > _SAME * np.maximum(1, np.abs(following))
    if apart.any():
        row = start + int(np.argmax(apart.reshape(len(apart), -1).any(axis=1)))
        raise ShapeError(
            f"next_observations of row {row} is not the observation of row {row + 1}, and row {row} ends no episode"
        )


def _made_of(arrays: Mapping[str, Any], action: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptions of the spaces, derived from the arrays."""
    return {"observation": box_of(arrays["observations"]), "env_action": action}
