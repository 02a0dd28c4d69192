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
    """Sequences of rows, in the order of time: index int32 ``(K, T, B)``.

    The first places are those of the burn-in, which only brings the memory of the policy up to date. All sequences are
    learned from at the same place on: where the burn-in is shorter, its first row is repeated in front of it. At their
    end shorter sequences are filled up with their last row.

    Attributes:
      filled: bool ``(K, T, B)``, false where a row is a repeated one.
      burn_in: number of places before those that are learned from.
    """

    filled: Array
    burn_in: int

    @property
    def learned(self) -> Array:
        """Bool ``(K, T, B)``, true for rows that are learned from."""
        learned = self.filled.copy()
        learned[:, : self.burn_in] = False
        return learned


def sequences_from(
    ring: Ring, first: Array, length: int, burn_in: int = 0, weight: Array | None = None
) -> SequenceBatch:
    """The sequences that are learned from these rows on, as far as their episodes are stored.

    Args:
      ring: one that knows which row follows which.
      first: their numbers in the order of all rows, int64 ``(K, B)``.
      length: rows that are learned from.
      burn_in: rows before them.
      weight: importance weights of the sequences, float32 ``(K, B)``.
    """
    assert ring.links is not None
    parts = ring.links.precede(first, burn_in), ring.links.follow(first, length)
    index, filled = (np.moveaxis(np.concatenate(both, axis=-1), -1, 1) for both in zip(*parts, strict=True))
    drawn = ring.batch(np.ascontiguousarray(index % ring.capacity, np.int32), weight)
    return SequenceBatch(
        layout=drawn.layout,
        tables=drawn.tables,
        index=drawn.index,
        weight=weight,
        successor=drawn.successor,
        filled=np.ascontiguousarray(filled),
        burn_in=burn_in,
    )


def check_lengths(capacity: int, length: int, burn_in: int, stride: int = 1) -> None:
    """Refuses sequences that do not fit into a buffer, or that leave rows out.

    Args:
      capacity: rows of the buffer.
      length, burn_in: rows of a sequence that are learned from, and before them.
      stride: rows from the beginning of a sequence to that of the next one.

    Raises:
      ConfigError: says what was expected.
    """
    if length < 1 or burn_in < 0 or burn_in + length > capacity:
        raise ConfigError(
            f"buffer of sequences: expected length >= 1, burn_in >= 0 and both together at most the capacity of "
            f"{capacity} rows, got length={length}, burn_in={burn_in}"
        )
    if not 1 <= stride <= length:
        raise ConfigError(
            f"buffer of sequences: expected a stride from 1 to length={length}, got {stride}: rows between two "
            "sequences would never be learned from"
        )


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
      burn_in: rows before them, as many as are stored of the episode. A sequence has ``burn_in + length`` places.
      whole: draw whole episodes; there is no burn-in then.
      images_once: store images once: those of `next_obs` are found at the row that follows. Rows are pushed by a
        `data_pusher` then, which says what follows what.
      seed: of the sampling stream.

    Raises:
      ConfigError: for a length that does not fit the capacity, or burn-in of whole episodes.
    """

    takes_order = True
    """Rows come with `engine.buffers.ring.ORDER`."""
    sequences = True
    """What is drawn are sequences of rows."""

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
        check_lengths(capacity, length, burn_in)
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

    @property
    def drawable(self) -> bool:
        """Whether there is anything to draw."""
        return self.num_episodes > 0 if self._whole else len(self) > 0

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
        first = self._episodes(shape) if self._whole else self._rows(shape)
        return sequences_from(self.ring, first, self._length, self._burn_in)

    def state_dict(self) -> StateDict:
        return {
            "ring": self.ring.state_dict(),
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        restore_generator(self._rng, state["rng"])

    def _rows(self, shape: tuple[int, int]) -> Array:
        """Rows to learn from first."""
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        oldest = self._links.oldest
        return self._rng.integers(oldest, oldest + len(self), size=shape)

    def _episodes(self, shape: tuple[int, int]) -> Array:
        """First rows of episodes."""
        episodes = self._links.episodes()
        if not len(episodes):
            raise ConfigError("episode buffer: no whole episode is stored yet: collect more, or raise the capacity")
        first: Array = episodes[self._rng.integers(0, len(episodes), size=shape)]
        last, _ = self._links.ahead(first, np.full(shape, self._length - 1))
        if not self._links.ended(last).all():
            raise ConfigError(
                f"episode buffer: an episode has more than length={self._length} rows: raise it to the time limit of "
                "the environment"
            )
        return first
