"""Decides which questions of collectors are computed together, and when. The caller tells the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array


@dataclasses.dataclass(frozen=True, eq=False)
class Ask:
    """Observations of a collector that wait for the outputs of a network.

    Attributes:
      place: position of the network among the served ones.
      version: version of the weights to use.
      leaves: inputs of the network, ``(n, ...)`` each.
      asker: takes the answer.
      since: time of arrival, in seconds.
    """

    place: int
    version: int
    leaves: Sequence[Array]
    asker: Any
    since: float

    @property
    def rows(self) -> int:
        """n."""
        return len(self.leaves[0])

    @property
    def kind(self) -> tuple[Any, ...]:
        """Only questions of the same kind can be computed together."""
        return self.place, self.version, *((leaf.shape[1:], leaf.dtype) for leaf in self.leaves)


class Batching:
    """Collects questions until there is a reason to compute them.

    Args:
      max_batch: maximum number of rows in a batch; a question of more rows is computed alone.
      max_wait: maximum time, in seconds, for which the first question of a batch waits for others.
    """

    def __init__(self, max_batch: int, max_wait: float) -> None:
        self._max_batch, self._max_wait = max_batch, max_wait
        self._waiting: list[Ask] = []

    def add(self, ask: Ask) -> None:
        """Adds a question."""
        self._waiting.append(ask)

    def due(self, now: float, askers: int) -> list[Ask]:
        """The questions to compute together now, the oldest first; empty if it is better to wait.

        The wait ends once `max_batch` rows have arrived, the oldest question is `max_wait` old, or every collector has
        asked.

        Args:
          now: the time, in seconds.
          askers: number of collectors, each of which waits for the answer to its last question.
        """
        if not self._waiting:
            return []
        oldest = self._waiting[0]
        batch, rows, full = [oldest], oldest.rows, oldest.rows >= self._max_batch
        for ask in self._waiting[1:]:
            if ask.kind != oldest.kind:
                continue
            if rows + ask.rows > self._max_batch:
                full = True
                break
            batch.append(ask)
            rows += ask.rows
        late = now >= oldest.since + self._max_wait
        if not (full or late or rows == self._max_batch or len(self._waiting) >= askers):
            return []
        taken = {id(ask) for ask in batch}
        self._waiting = [ask for ask in self._waiting if id(ask) not in taken]
        return batch

    def patience(self, now: float) -> float | None:
        """Seconds until the oldest question has waited long enough; None if there is none."""
        return self._waiting[0].since + self._max_wait - now if self._waiting else None


def joined(batch: Sequence[Ask]) -> list[Array]:
    """The leaves of all questions of a batch, concatenated along the first axis."""
    if len(batch) == 1:
        return list(batch[0].leaves)
    return [np.concatenate(leaves) for leaves in zip(*(ask.leaves for ask in batch))]


def divided(outputs: Sequence[Array], batch: Sequence[Ask], shared: frozenset[int]) -> list[tuple[Array, ...]]:
    """The rows of a batch's outputs that answer each question.

    Args:
      outputs: outputs of the network, ``(B, ...)`` each, apart from those in `shared`.
      batch: the questions, with B rows together.
      shared: indices of the outputs that have no batch axis: all questions get them whole.
    """
    answers, start = [], 0
    for ask in batch:
        stop = start + ask.rows
        answers.append(tuple(x if k in shared else x[start:stop] for k, x in enumerate(outputs)))
        start = stop
    return answers
