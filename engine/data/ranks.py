"""The order of recorded episodes, from the worst to the best."""

import numpy as np

from minding.engine.data.dataset import Dataset
from minding.engine.errors import DataError
from minding.engine.types import Array

RANKINGS = ("return", "order")
"""What ranks episodes: the sum of their rewards, or their order in the data, in which the last is the best."""


def episode_ranks(dataset: Dataset, by: str) -> Array:
    """The rank of each recorded episode, ``(E,)``: a higher number is a better episode, equal ones are not compared.

    Args:
      dataset: the recorded data.
      by: one of `RANKINGS`.
    Raises:
      DataError: no two episodes differ in rank.
    """
    starts = np.concatenate([[0], dataset.end[:-1] + 1])
    ranks: Array = np.arange(len(starts))
    if by == "return":
        ranks = np.add.reduceat(dataset.reward.astype(np.float64), starts)
    if len(np.unique(ranks)) < 2:
        raise DataError(
            f"the recorded data have {len(starts)} episodes, of which no two differ in their {by}: expected episodes "
            "of different quality to compare; record agents of different strength, or rank episodes by their order "
            "(policy.other.trex.ranking=order)"
        )
    return ranks
