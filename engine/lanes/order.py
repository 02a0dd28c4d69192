"""The choice of the collectors whose rollout an iteration takes."""

from __future__ import annotations

from collections.abc import Sequence


def next_rows(under_way: Sequence[Sequence[int]], version: int, staleness: int) -> list[int]:
    """The rows of collectors of which one may be taken in an iteration, so that no rollout ever gets too old.

    A rollout that was collected with version w of the weights has to be used in the iteration w + staleness at the
    latest, and each iteration uses one. So if k of the rollouts under way have to be used within the next k iterations,
    the iteration takes one of these k; otherwise it may take any.

    Args:
      under_way: for each row the versions of the weights of its requests, in the order in which they are answered.
      version: version of the weights of this iteration.
      staleness: maximum age, in versions, of the weights of a rollout.
    """
    oldest = sorted((w, row, place) for row, versions in enumerate(under_way) for place, w in enumerate(versions))
    for k, (w, _, _) in enumerate(oldest):
        if w + staleness <= version + k:
            return sorted({row for _, row, place in oldest[: k + 1] if place == 0})
    return [row for row, versions in enumerate(under_way) if versions]
