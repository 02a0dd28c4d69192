"""Finds next observations that may be wrong: jumps within an episode, and last observations that repeat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minding.engine.data.episode import Episode
from minding.engine.errors import few
from minding.engine.types import Array
from minding.training.formats.source import Source

_JUMP = 8.0
"""A change of an observation within an episode is suspicious above this multiple of the 99th percentile."""
_RESTART = 1.5
"""The same for a change that leads into the region where episodes begin from outside of it."""
_SEVERAL = 5
"""Number of episodes from which the region where episodes begin can be estimated."""
_SAMPLE = 100_000
_ROWS = 1 << 16
"""Steps that are processed together."""


class Repeats:
    """Counts last observations that equal the observation before, as in logs that lack the one after the last step."""

    def __init__(self) -> None:
        self._within = self._inner = self._last = self._episodes = 0

    def add(self, episode: Episode) -> None:
        """Counts the repeats of an episode."""
        same = np.ones(1, np.bool_)
        last = np.ones(1, np.bool_)
        for path, values in episode.obs.items():
            flat = values.reshape(len(values), -1)
            same = same & (flat[1:] == flat[:-1]).all(axis=1)
            last = last & (flat[-1:] == episode.final_obs[path].reshape(1, -1)).all(axis=1)
        self._within, self._inner = self._within + int(same.sum()), self._inner + len(episode) - 1
        self._last, self._episodes = self._last + int(last[0]), self._episodes + 1

    def texts(self) -> Iterator[str]:
        """The findings, if observations repeat more often at ends than elsewhere."""
        if self._last and self._last * max(self._inner, 1) > 2 * self._within * self._episodes:
            yield (
                f"in {self._last:,} of {self._episodes:,} episodes the observation after the last step equals the one "
                "before it: the true one may be missing, and episodes that do not terminate bootstrap from it"
            )


def jumps(source: Source) -> Iterator[str]:
    """Finds exceptionally large changes of an observation within an episode, where an end or rows may be missing."""
    starts, changes = _starts_and_changes(source)
    for path, values in changes.items():
        usual = np.quantile(values, 0.99, axis=0)
        begin = np.stack(starts[path])
        found, again = [], []
        for number, episode in enumerate(source.episodes()):
            if isinstance(episode, Episode):
                for first, before, after in _pairs(episode, path):
                    change = np.abs(after - before)
                    odd = (change > _JUMP * usual + 1e-6).any(axis=1)
                    found += [f"step {first + step} of episode {number}" for step in np.flatnonzero(odd).tolist()]
                    if len(begin) >= _SEVERAL:
                        restart = (
                            ~odd & _restarts(before, after, begin) & (change > _RESTART * usual + 1e-6).any(axis=1)
                        )
                        again += [
                            f"step {first + step} of episode {number}" for step in np.flatnonzero(restart).tolist()
                        ]
        name = f"observation {path!r}" if path else "observation"
        if found:
            yield f"the {name} jumps at {few(found)}: an end or rows may be missing there"
        if again:
            yield f"the {name} returns to the start of an episode at {few(again)}: an end may be missing there"


def _restarts(before: Array, after: Array, starts: Array) -> Array:
    """Whether each step leads from outside into the region of the first observations, bool ``(n,)``."""
    low, high = starts.min(axis=0), starts.max(axis=0)
    margin = 0.1 * (high - low) + 1e-6

    def within(values: Array) -> Array:
        inside: Array = ((values >= low - margin) & (values <= high + margin)).all(axis=1)
        return inside

    return within(after) & ~within(before)


def _starts_and_changes(source: Source) -> tuple[dict[str, list[Array]], dict[str, Array]]:
    """The first observations of all episodes, and the changes in a sample of steps, for each vector observation."""
    starts: dict[str, list[Array]] = {}
    found: dict[str, list[Array]] = {}
    stride = size = 1
    for episode in source.episodes():
        if not isinstance(episode, Episode):
            continue
        for path, values in episode.obs.items():
            if values.dtype.kind == "f" and values.ndim == 2:
                starts.setdefault(path, []).append(values[0].copy())
                for first, before, after in _pairs(episode, path):
                    found.setdefault(path, []).append(np.abs(after - before)[(size + first) % stride :: stride])
        size += len(episode)
        if size // stride > _SAMPLE:
            # From here on every second step is left out.
            stride, found = 2 * stride, {path: [each[::2] for each in parts] for path, parts in found.items()}
    return starts, {path: np.concatenate(parts) for path, parts in found.items()}


def _pairs(episode: Episode, path: str) -> Iterator[tuple[int, Array, Array]]:
    """Observations before and after steps, in parts of bounded size, each with the number of its first step."""
    values = episode.obs[path]
    for first in range(0, len(values), _ROWS):
        before = values[first : first + _ROWS]
        after = values[first + 1 : first + _ROWS + 1]
        if len(after) < len(before):
            after = np.concatenate([after, episode.final_obs[path][None]])
        yield first, before, after
