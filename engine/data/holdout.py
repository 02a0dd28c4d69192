"""Parts of recorded data: the episodes to learn from, the held-out ones to evaluate on, and their order by quality."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minding.engine.checkpoint.manifest import sha256
from minding.engine.data.dataset import Dataset
from minding.engine.errors import DataError
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array


class DatasetPart:
    """Some episodes of recorded data, whose steps are numbered from 0 within the part; no array is copied.

    Args:
      episodes: int ``(E,)``, the numbers of the episodes in the data, increasing.

    Attributes:
      end: int64 ``(E,)``, the last step of each episode, numbered within the part.
    """

    def __init__(self, data: Dataset, episodes: Array) -> None:
        self._data, self.episodes = data, episodes
        lengths = np.diff(data.end, prepend=-1)[episodes]
        self.end = np.cumsum(lengths) - 1
        self._offset = data.end[episodes] - self.end
        self.digest = sha256(data.digest.encode() + episodes.astype("<i8").tobytes())

    def __len__(self) -> int:
        return int(self.end[-1]) + 1

    @property
    def about(self) -> Mapping[str, Any]:
        return self._data.about

    @property
    def names(self) -> tuple[str, ...]:
        return self._data.names

    def rows(self, names: Iterable[str], index: Array) -> dict[str, Array]:
        """See `Dataset.rows`; `index` contains numbers within the part."""
        return self._data.rows(names, index + self._offset[np.searchsorted(self.end, index)])

    def returns(self) -> Array:
        """Float64 returns of the episodes that ended."""
        whole = self._data.terminated[self._data.end] | self._data.truncated[self._data.end]
        found: Array = self._data.returns()[(np.cumsum(whole) - 1)[self.episodes[whole[self.episodes]]]]
        return found


def first_steps(data: Dataset | DatasetPart) -> Array:
    """The number of the first step of each episode, int64 ``(E,)``."""
    found: Array = np.concatenate([[0], data.end[:-1] + 1])
    return found


def hold_out(data: Dataset, share: float, seed: int) -> tuple[Dataset | DatasetPart, DatasetPart | None]:
    """Splits the episodes into a part to learn from and a held-out part. The seed decides which episodes are held out;
    with the same seed, a larger share holds out the same ones and more."""
    if not share:
        return data, None
    count = len(data.end)
    held = max(1, round(share * count))
    if held >= count:
        raise DataError(
            f"policy.other.holdout={share:g} of {count} recorded episode{'s' if count > 1 else ''} leaves none to "
            "learn from: lower policy.other.holdout, or record more episodes"
        )
    order = SeedStreams(seed).generator("holdout").permutation(count)
    return DatasetPart(data, np.sort(order[held:])), DatasetPart(data, np.sort(order[:held]))


RANKINGS = ("return", "order")
"""What ranks episodes: the sum of their rewards, or their order in the data, in which the last is the best."""


def episode_ranks(dataset: Dataset, by: str) -> Array:
    """The rank of each recorded episode, ``(E,)``: a higher number is a better episode, equal ones are not
    compared."""
    starts = first_steps(dataset)
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
