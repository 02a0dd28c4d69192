"""Episodes and windows of them from replay, for policies with memory.

Windows with burn-in: Kapturowski et al., 2019 (R2D2), https://openreview.net/forum?id=r1lyTjAqYX, section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.links import Links
from minding.engine.buffers.ring import Ring
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


@dataclasses.dataclass(slots=True, kw_only=True)
class SequenceBatch(IndexedBatch):
    """Sequences of rows, in the order of time: index int32 ``(K, T, B)``.

    The first places belong to the burn-in, which only brings the memory of the policy up to date. The rows to learn
    from begin at the same place in all sequences: a shorter burn-in is padded at its start with copies of its first
    row, and a shorter sequence at its end with copies of its last row.

    Attributes:
      filled: bool ``(K, T, B)``, false at places with a repeated row.
      burn_in: number of places before the rows to learn from.
      window: int64 ``(K, B)``, the numbers of the sequences in a buffer that samples by priority.
    """

    filled: Array
    burn_in: int
    window: Array | None = None

    @property
    def learned(self) -> Array:
        """Bool ``(K, T, B)``, true for rows to learn from."""
        learned = self.filled.copy()
        learned[:, : self.burn_in] = False
        return learned


def sequences_from(
    ring: Ring, first: Array, count: Array, length: int, burn_in: int = 0, weight: Array | None = None
) -> SequenceBatch:
    """The sequences whose rows to learn from begin at these rows, as far as their episodes are stored.

    Args:
      ring: an ordered ring.
      first: numbers of the rows in the order of all rows, int64 ``(K, B)``.
      count: maximum number of rows to learn from in each, int64 ``(K, B)``, from 1 to `length`.
      length: number of places for rows to learn from.
      burn_in: number of places before them.
      weight: importance weights of the sequences, float32 ``(K, B)``.
    """
    assert ring.links is not None
    parts = ring.links.precede(first, burn_in), window(ring.links, first, count, length)
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


def window(links: Links, first: Array, count: Array, length: int) -> tuple[Array, Array]:
    """Up to `count` rows that start at `first`, as far as their episodes are stored, in `length` places.

    Returns:
      (rows int64 ``(..., length)``, padded with the last one; bool, false at the padding).
    """
    index, filled = links.follow(first, length)
    last, place = count[..., None] - 1, np.arange(length)
    return np.where(place <= last, index, np.take_along_axis(index, last, axis=-1)), filled & (place <= last)


def check_lengths(capacity: int, length: int, burn_in: int, stride: int = 1) -> None:
    """Refuses sequences that do not fit into a buffer, or that skip rows.

    Args:
      capacity: number of rows in the buffer.
      length, burn_in: number of rows to learn from in a sequence, and of rows before them.
      stride: number of rows from the beginning of a sequence to the beginning of the next one.

    Raises:
      ConfigError: a length does not fit; the message says what was expected.
    """
    if length < 1 or burn_in < 0 or burn_in + length > capacity:
        raise ConfigError(
            f"buffer of sequences: expected length >= 1, burn_in >= 0 and both together at most the capacity of "
            f"{capacity} rows, got length={length}, burn_in={burn_in}"
        )
    if stride < 1 or length % stride:
        fitting = [n for n in range(1, length + 1) if length % n == 0]
        nearest = min(fitting, key=lambda n: abs(n - stride))
        raise ConfigError(
            f"buffer of sequences: expected a stride that divides length={length}, got {stride}: some rows would be in "
            f"more sequences than others; use {nearest}"
        )


class EpisodeBuffer:
    """A ring of rows that records the order of the rows of each episode.

    Rows of several environments may arrive mixed and in rollouts of any length, and rows such as reset rows may be
    missing. The buffer samples either windows within an episode, or whole episodes that ended and are still stored
    completely; all are equally likely, with replacement.

    Learning uses each stored row equally often. A window may begin up to ``length - 1`` rows before the first stored
    row of an episode, and may reach beyond its end; it then contains only the rows that exist. So each row is in
    exactly `length` windows, which are equally likely.

    Args:
      capacity: number of rows kept; the oldest is overwritten first.
      fields: name -> Field.
      length: number of rows to learn from in a sequence; for whole episodes at least the length of the longest.
      burn_in: number of rows before them, as far as they are stored. A sequence has ``burn_in + length`` places.
      whole: sample whole episodes, without burn-in.
      images_once: store each image once: images of `next_obs` are read from the following row. Rows then have to be
        pushed by a `data_pusher`, which records their order.
      seed: seed of the sampling stream.

    Raises:
      ConfigError: for a length that does not fit the capacity, or burn-in of whole episodes.
    """

    takes_order = True
    """New rows bring `engine.buffers.ring.ORDER`."""
    sequences = True
    """The buffer samples sequences of rows."""

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
        """The number of episodes that ended and are stored completely."""
        return len(self._links.episodes())

    @property
    def drawable(self) -> bool:
        """Whether the buffer can be sampled."""
        return self.num_episodes > 0 if self._whole else len(self) > 0

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends rows; those of each environment must be in the order of time. See `Ring.push` for their fields."""
        self.ring.push(transitions)

    def push_episode(self, episode: Mapping[str, Array]) -> None:
        """Appends a whole episode, one array ``(n, *shape)`` per field; the first one determines n."""
        count = len(next(iter(episode.values())))
        # It belongs to no environment, so that no row continues it.
        number, here = np.full(count, -1), np.arange(count)
        self.push({**episode, "sequence": number, "begun": here == 0, "ended": here == count - 1})

    def sample(self, updates: int, batch_size: int) -> SequenceBatch:
        """Samples the sequences of `updates` minibatches of `batch_size`.

        Raises:
          ConfigError: if the buffer cannot be sampled, or an episode is longer than `length`.
        """
        shape = (updates, batch_size)
        if self._whole:
            return sequences_from(self.ring, self._episodes(shape), np.full(shape, self._length), self._length)
        return sequences_from(self.ring, *self._windows(shape), self._length, self._burn_in)

    def state_dict(self) -> StateDict:
        return {
            "ring": self.ring.state_dict(),
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        restore_generator(self._rng, state["rng"])

    def _windows(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """The first rows of windows, and their numbers of rows."""
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        heads, early = self._links.heads, self._length - 1
        drawn = self._rng.integers(0, len(self) + len(heads) * early, size=shape)
        first, count = self._links.oldest + drawn, np.full(shape, self._length)
        # Windows that begin before the first row.
        clipped = drawn >= len(self)
        head, count[clipped] = np.divmod(drawn[clipped] - len(self), max(early, 1))
        first[clipped], count[clipped] = heads[head], count[clipped] + 1
        return first, count

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
