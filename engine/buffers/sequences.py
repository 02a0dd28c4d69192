"""Prioritized replay of sequences.

Kapturowski et al., 2019 (R2D2), https://openreview.net/forum?id=r1lyTjAqYX, section 2.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.episode import SequenceBatch, check_lengths, sequences_from, window
from minding.engine.buffers.priorities import UNKNOWN, Priorities
from minding.engine.buffers.ring import Ring
from minding.engine.buffers.windows import Windows
from minding.engine.data.batch import PRIORITY, Field, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class PrioritizedSequenceBuffer:
    """A ring of rows, sampled as sequences in proportion to their priorities, with importance weights.

        p = eta max_t |e_t| + (1 - eta) mean_t |e_t|        (e_t: errors of the rows to learn from)

    A sequence begins at every `stride`-th row of an episode. Further sequences begin before the first row and contain
    only the rows that exist, as do sequences that reach beyond the end: each row is in exactly ``length / stride``
    sequences. A sequence can be sampled as soon as its first row is stored, and grows with its episode. While it grows,
    and until it is learned from after that, its priority follows from the errors that its rows brought
    (`priority_calculator`), or is the highest one so far if they brought none. `Priorities` defines the sampling.

    Args:
      capacity: number of rows kept; the oldest is overwritten first.
      fields: name -> Field, usually ``policy.learn_mode.fields``.
      length: number of rows to learn from in a sequence.
      burn_in: number of rows before them, as far as they are stored.
      stride: number of rows from the beginning of a sequence to the beginning of the next one, a divisor of `length`;
        with `length` itself, sequences do not overlap.
      eta: share of the largest error.
      alpha, beta, beta_steps: see `Priorities`.
      images_once: see `EpisodeBuffer`.
      seed: seed of the sampling stream.

    Raises:
      ConfigError: for lengths that do not fit the capacity or the stride, or shares out of range.
    """

    prioritized = True
    takes_order = True
    sequences = True

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        *,
        length: int,
        burn_in: int = 0,
        stride: int = 1,
        eta: float = 0.9,
        alpha: float = 0.9,
        beta: float = 0.6,
        beta_steps: int = 100_000,
        images_once: bool = False,
        seed: int = 0,
    ) -> None:
        check_lengths(capacity, length, burn_in, stride)
        if not 0 <= eta <= 1:
            raise ConfigError(f"buffer of sequences: expected eta in [0, 1], got {eta}")
        self.ring = Ring(capacity, RowLayout(fields, images_once=images_once), ordered=True)
        self.capacity = capacity
        assert self.ring.links is not None
        self._links = self.ring.links
        self._length, self._burn_in, self._stride, self._eta = length, burn_in, stride, eta
        self._windows = Windows()
        self._priorities = Priorities(self._windows.slots, alpha, beta, beta_steps)
        # By place in the ring, the errors that rows brought.
        self._given = np.full(capacity, UNKNOWN, np.float32)
        # The sequences that are still growing.
        self._growing = np.zeros(0, np.int64)
        # By environment, the number of rows since the last sequence began.
        self._since: dict[int, int] = {}
        self._rng = SeedStreams(seed).generator("buffer")

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next minibatch."""
        return self._priorities.beta

    @property
    def drawn(self) -> int:
        """The number of minibatches so far, with which `beta` rises; a run that refills its buffer sets it."""
        return self._priorities.drawn

    @drawn.setter
    def drawn(self, minibatches: int) -> None:
        self._priorities.drawn = minibatches

    def __len__(self) -> int:
        return len(self.ring)

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends rows; those of each environment must be in the order of time. See `Ring.push` for their fields.

        They may also bring `PRIORITY`, ``(n,)``.

        Raises:
          NonFiniteError, ConfigError: for invalid priorities, as in `Priorities.write`.
        """
        places = self.ring.push(transitions)
        if not len(places):
            return
        self._given[places] = transitions.get(PRIORITY, UNKNOWN)
        self._priorities.forget(self._windows.drop(self._links.oldest))
        begun = self._begin(self._links.added - len(places) + np.arange(len(places)), transitions["sequence"])
        growing = np.concatenate([self._growing, begun])
        growing = growing[self._windows.held(growing)]
        count = self._windows.count(growing)
        index, filled = window(self._links, self._windows.first(growing), count, self._length)
        self._priorities.begin(self._windows.slot(growing), self._first_priority(index, filled))
        self._growing = growing[(filled.sum(axis=1) < count) & self._links.running(index[:, -1])]

    def sample(self, updates: int, batch_size: int) -> SequenceBatch:
        """Samples the sequences of `updates` minibatches of `batch_size`, with their importance weights ``(K, B)``.

        Raises:
          ConfigError: if the buffer is empty. Check `len(buffer)` first.
        """
        slots, weight = self._priorities.draw(updates, batch_size, self._rng)
        drawn = self._windows.number(slots)
        first, count = self._windows.first(drawn), self._windows.count(drawn)
        batch = sequences_from(self.ring, first, count, self._length, self._burn_in, weight)
        return dataclasses.replace(batch, window=drawn)

    def update(self, batch: SequenceBatch, priorities: Array) -> None:
        """Sets the priorities of sampled sequences; for a sequence that occurs twice the last one counts.

        Args:
          batch: a result of `sample`.
          priorities: float32 (K, T, B), at least 0: absolute errors of rows; only rows to learn from count.

        Raises:
          NonFiniteError: if a priority is NaN or infinite; nothing is written then.
          ConfigError: if a priority is negative; nothing is written then.
        """
        assert batch.window is not None
        mixed, drawn = mix(priorities, batch.learned, self._eta), batch.window
        held = self._windows.held(drawn)
        self._priorities.write(self._windows.slot(drawn[held]), mixed[held])

    def _begin(self, rows: Array, sequence: Array) -> Array:
        """Adds the sequences that begin with new rows (n,) of these environments (n,); returns their numbers."""
        heads, begins = self._links.headed(rows), np.zeros(len(rows), np.bool_)
        for number in np.unique(sequence).tolist():
            mine = np.flatnonzero(sequence == number)
            place = np.arange(len(mine))
            age = place - np.maximum.accumulate(np.where(heads[mine], place, -self._since.get(number, 0)))
            begins[mine] = age % self._stride == 0
            self._since[number] = int(age[-1] + 1) % self._stride
        # Each sequence that begins before the first row is shorter by one more stride.
        parts = self._length // self._stride
        repeats = np.where(heads, parts, 1)[begins]
        shorter = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        if not self._windows.room(len(shorter)):
            held = self._windows.numbers
            slots = self._windows.slot(held)
            self._windows.grow(len(shorter))
            self._priorities.move(self._windows.slots, slots, self._windows.slot(held))
        return self._windows.add(np.repeat(rows[begins], repeats), self._length - self._stride * shorter)

    def _first_priority(self, index: Array, filled: Array) -> Array:
        """Priorities (n,) of sequences that were not learned from, `UNKNOWN` if a row brought none."""
        errors = self._given[index % self.capacity]
        known = (errors != UNKNOWN).all(axis=1)
        return np.where(known, mix(errors.T, filled.T, self._eta), UNKNOWN)

    def state_dict(self) -> StateDict:
        return {
            "ring": self.ring.state_dict(),
            "windows": self._windows.state_dict(),
            **self._priorities.state_dict(self._windows.slot(self._windows.numbers)),
            "given": self._given[: len(self)].copy(),
            "growing": self._growing.copy(),
            "since": {str(number): count for number, count in self._since.items()},
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        self._windows.load_state_dict(state["windows"])
        slots = self._windows.slot(self._windows.numbers)
        self._priorities.load_state_dict(state, slots, self._windows.slots)
        self._given[:] = UNKNOWN
        self._given[: len(self)] = state["given"]
        self._growing = np.array(state["growing"], np.int64)
        self._since = {int(number): int(count) for number, count in state["since"].items()}
        restore_generator(self._rng, state["rng"])


def mix(errors: Array, learned: Array, eta: float) -> Array:
    """``eta max + (1 - eta) mean`` of the errors of rows to learn from.

    Args:
      errors: float (..., T, B), at least 0.
      learned: the rows to learn from, bool (..., T, B), at least one of each sequence.
      eta: share of the largest error.

    Returns:
      float64 (..., B); NaN for a sequence with such an error.
    """
    sizes = np.where(learned, errors.astype(np.float64), 0.0)
    mixed: Array = eta * sizes.max(axis=-2) + (1.0 - eta) * sizes.sum(axis=-2) / learned.sum(axis=-2)
    return mixed
