"""Episodes and windows of them from replay, for policies with memory.

Windows with burn-in: Kapturowski et al., 2019 (R2D2), https://openreview.net/forum?id=r1lyTjAqYX, section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.ring import Ring
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


@dataclasses.dataclass(slots=True, kw_only=True)
class SequenceBatch(IndexedBatch):
    """Sequences of rows, in the order of time: index int32 ``(K, B, L)``.

    Shorter ones are filled up at their end with their last row.

    Attributes:
      filled: bool ``(K, B, L)``, false where a sequence is filled up.
      learned: bool ``(K, B, L)``, true for rows that are learned from; those before are burn-in, which only bring the
        memory of the policy up to date.
    """

    filled: Array
    learned: Array


class EpisodeBuffer:
    """A ring of rows that knows which row follows which.

    Rows of several environments may come mixed and in rollouts of any length; rows that were left out, such as those of
    resets, do not matter. Drawn are either windows within an episode, where each stored row is equally likely to be the
    first one learned from, or whole episodes that ended and are still stored from their first row on, each equally
    likely; both with replacement.

    Args:
      capacity: number of rows kept; the oldest is overwritten first.
      fields: name -> Field.
      length: rows of a sequence that are learned from; for whole episodes at least that of the longest.
      burn_in: rows before them, as many as the episode has. A sequence has ``burn_in + length`` places.
      whole: draw whole episodes; there is no burn-in then.
      images_once: store images once: those of `next_obs` are found at the row that follows. Rows are pushed by a
        `data_pusher` then, which says what follows what.
      seed: of the sampling stream.

    Raises:
      ConfigError: for a length that does not fit the capacity, or burn-in of whole episodes.
    """

    takes_order = True
    """Rows come with `engine.buffers.ring.ORDER`."""

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        *,
        length: int,
        burn_in: int = 0,
        whole: bool = False,
        images_once: bool = False,
        seed: int = 0,
    ) -> None:
        if length < 1 or burn_in < 0 or burn_in + length > capacity:
            raise ConfigError(
                f"episode buffer: expected length >= 1, burn_in >= 0 and both together at most the capacity of "
                f"{capacity} rows, got length={length}, burn_in={burn_in}"
            )
        if whole and burn_in:
            raise ConfigError(
                f"episode buffer: whole episodes begin with an empty memory: set burn_in=0, not {burn_in}"
            )
        self.ring = Ring(capacity, RowLayout(fields, images_once=images_once), ordered=True)
        self.capacity = capacity
        assert self.ring.links is not None
        self._links = self.ring.links
        self._length, self._burn_in, self._whole = length, burn_in, whole
        self._rng = SeedStreams(seed).generator("buffer")

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    def __len__(self) -> int:
        return len(self.ring)

    @property
    def num_episodes(self) -> int:
        """Episodes that ended and are stored from their first row on."""
        return len(self._links.episodes())

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends rows, those of each environment in the order of time; see `Ring.push`, which says what they hold."""
        self.ring.push(transitions)

    def push_episode(self, episode: Mapping[str, Array]) -> None:
        """Appends a whole episode, one array ``(n, *shape)`` per field; the first one says how many rows it has."""
        count = len(next(iter(episode.values())))
        # Of no environment: nothing continues it.
        number, here = np.full(count, -1), np.arange(count)
        self.push({**episode, "sequence": number, "begun": here == 0, "ended": here == count - 1})

    def sample(self, updates: int, batch_size: int) -> SequenceBatch:
        """Draws the sequences of `updates` minibatches of `batch_size`.

        Raises:
          ConfigError: if there is nothing to draw from, or an episode is longer than `length`.
        """
        shape = (updates, batch_size)
        first, before = self._episodes(shape) if self._whole else self._windows(shape)
        index, filled = self._links.follow(first, self._burn_in + self._length)
        if self._whole and not self._links.ended(index[..., -1]).all():
            raise ConfigError(
                f"episode buffer: an episode has more than length={self._length} rows: raise it to the time limit of "
                "the environment"
            )
        place = np.arange(index.shape[-1])
        learned = filled & (place >= before[..., None]) & (place < before[..., None] + self._length)
        rows = (index % self.capacity).astype(np.int32)
        drawn = self.ring.batch(rows)
        return SequenceBatch(
            layout=drawn.layout,
            tables=drawn.tables,
            index=rows,
            successor=drawn.successor,
            filled=filled,
            learned=learned,
        )

    def state_dict(self) -> StateDict:
        return {
            "ring": self.ring.state_dict(),
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        restore_generator(self._rng, state["rng"])

    def _windows(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """First rows of windows, and how many rows of each come before those that are learned from."""
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        oldest = self._links.oldest
        row = self._rng.integers(oldest, oldest + len(self), size=shape)
        return self._links.go_back(row, self._burn_in)

    def _episodes(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """First rows of episodes, and zeros."""
        episodes = self._links.episodes()
        if not len(episodes):
            raise ConfigError("episode buffer: no whole episode is stored yet: collect more, or raise the capacity")
        first = episodes[self._rng.integers(0, len(episodes), size=shape)]
        return first, np.zeros(shape, np.int64)
