"""D4RL's form (Fu et al., 2020, https://arxiv.org/abs/2004.07219): one HDF5 file with a row per step.

Arrays `observations`, `actions`, `rewards` and `terminals`, in most sets `timeouts` and in some `next_observations`.
These rules make episodes of rows:

- A row whose `terminals` is set ends its episode, and nothing bootstraps from what follows. Without `next_observations`
  that is not in the file: the row's own observation stands in its place.
- A row whose `timeouts` is set ends its episode, which would have gone on. It stays only where its successor is known,
  in `next_observations`; without them it is dropped, and its observation is what the step before led to.
- The last row of the file, where it ends nothing, is treated as one whose `timeouts` is set, but its episode is neither
  terminated nor truncated: recording ended.
- Without `timeouts` a horizon must be given: an episode of so many steps that does not terminate has timed out.
- Dropped rows are counted.

The row after an end is never its successor. Where there are `next_observations`, they are compared with the rows that
follow: an episode in which they differ is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.dataset_writer import Episode
from minding.engine.data.references import References
from minding.engine.errors import DataError, ShapeError
from minding.engine.types import Array
from minding.envs.recorded import action_space, observation_space
from minding.training.formats.source import Spaces, open_hdf5, reward_of, stored

NEEDED = ("observations", "actions", "rewards", "terminals")
_SAME = 1e-5
"""How far a stored successor may be from the next row, in units of one or of the number."""


class D4RLSource:
    """A file in D4RL's form, see the module.

    Args:
      path: the file.
      horizon: steps after which an episode times out, for a file without `timeouts`.
      env: what the environment is (see `engine.data.dataset.describe`); without it the spaces are made of the arrays,
        actions without limits.

    Raises:
      DataError: it is not such a file, or the horizon is missing or has no effect.
      MissingExtraError: h5py is not installed.
    """

    references: References | None = None

    def __init__(self, path: Path, horizon: int | None = None, env: Mapping[str, Any] | None = None) -> None:
        self.path, self.dropped = path, 0
        self._file = open_hdf5(path)
        missing = [name for name in NEEDED if name not in self._file]
        if missing:
            found = ", ".join(sorted(self._file)) or "nothing"
            raise DataError(f"{str(path)!r} is not in D4RL's form: it lacks {', '.join(missing)}, and has {found}")
        names = [*NEEDED, *(name for name in ("timeouts", "next_observations") if name in self._file)]
        try:
            self._arrays = {name: stored(self._file, name) for name in names}
        except ShapeError as error:
            raise DataError(f"{str(path)!r}: {error}") from None
        # The row of a time-out, unless what followed it is known.
        self.shortened = int("next_observations" not in self._arrays)
        self._check_lengths()
        if horizon is None and "timeouts" not in self._arrays:
            raise DataError(
                f"{str(path)!r} has no `timeouts`: nothing tells where episodes that did not terminate ended; give "
                "--horizon STEPS, the time limit of its environment"
            )
        if horizon is not None and "timeouts" in self._arrays:
            raise DataError(f"{str(path)!r} has `timeouts`: leave --horizon out, which is for files without them")
        self._horizon = horizon
        if env is None:
            self._spaces = Spaces(*_made_of(self._arrays))
            self.env: Mapping[str, Any] = {
                **{"env_id": path.stem, "wrappers": [], "env_kwargs": {}, "max_episode_steps": horizon},
                **self._spaces.description,
            }
        else:
            self._spaces = Spaces(observation_space(env["observation"]), action_space(env["env_action"]))
            self.env = env

    def _check_lengths(self) -> None:
        lengths = {name: array.shape[0] if array.ndim else 0 for name, array in self._arrays.items()}
        if len(set(lengths.values())) != 1:
            told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise DataError(f"{str(self.path)!r}: its arrays differ in rows: {told}")
        if not lengths["actions"]:
            raise DataError(f"{str(self.path)!r} holds no rows")

    def episodes(self) -> Iterator[Episode | ValueError]:
        """See `Source`."""
        terminated = self._arrays["terminals"][()].astype(np.bool_).reshape(-1)
        timed_out = self._timed_out(terminated)
        ends = np.flatnonzero(terminated | timed_out)
        if not len(ends) or ends[-1] != len(terminated) - 1:
            ends = np.append(ends, len(terminated) - 1)
        start = 0
        for end in ends.tolist():
            try:
                episode = self._episode(start, end, bool(terminated[end]), bool(timed_out[end]))
            except ValueError as error:
                yield error
            else:
                if episode is not None:
                    yield episode
            start = end + 1

    def _timed_out(self, terminated: Array) -> Array:
        """Bool ``(S,)``: where an episode ended without terminating."""
        if self._horizon is None:
            timeouts: Array = self._arrays["timeouts"][()].astype(np.bool_).reshape(-1)
            return timeouts & ~terminated
        found = np.zeros(len(terminated), np.bool_)
        start = 0
        for end in [*np.flatnonzero(terminated).tolist(), len(terminated)]:
            found[start + self._horizon - 1 : end : self._horizon] = True
            start = end + 1
        return found

    def _episode(self, start: int, end: int, terminated: bool, timed_out: bool) -> Episode | None:
        """The rows from start to end; None where none of them stays."""
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
            reward=reward_of(self._arrays["rewards"][rows].reshape(-1)),
            terminated=terminated,
            truncated=timed_out,
        )


def _compare(following: Array, stored: Array, start: int) -> None:
    """Raises ShapeError where the stored successor of a row is not the row that follows."""
    apart = np.abs(following.astype(np.float64) - stored) > _SAME * np.maximum(1, np.abs(following))
    if apart.any():
        row = start + int(np.argmax(apart.reshape(len(apart), -1).any(axis=1)))
        raise ShapeError(
            f"next_observations of row {row} is not the observation of row {row + 1}, and row {row} ends no episode"
        )


def _made_of(arrays: Mapping[str, Any]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Spaces that have the arrays' values."""
    obs, action = arrays["observations"], arrays["actions"]
    if obs.dtype == np.uint8:
        seen: spaces.Space[Any] = spaces.Box(0, 255, obs.shape[1:], np.uint8)
    else:
        seen = spaces.Box(-np.inf, np.inf, obs.shape[1:], np.float32)
    if action.dtype.kind in "iu":
        return seen, spaces.Discrete(int(action[()].max()) + 1)
    return seen, spaces.Box(-np.inf, np.inf, action.shape[1:], np.float32)
