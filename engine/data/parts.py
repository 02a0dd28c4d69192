"""Some episodes of recorded data: the ones that are learned from, and the ones that judge what was learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minding.engine.checkpoint.manifest import sha256
from minding.engine.data.dataset import Dataset
from minding.engine.errors import DataError
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array


class DatasetPart:
    """Some episodes of recorded data, numbered from 0 on as if there were no others; nothing is copied.

    Args:
      data: all of it; its arrays may be mapped.
      episodes: int ``(E,)``, the numbers of the episodes, rising.

    Attributes:
      about: as in the data.
      episodes: the numbers.
      end: int64 ``(E,)``, the last step of each episode, in numbers of the part.
      digest: of the data and the numbers: what tells the part from other data and other parts.
    """

    def __init__(self, data: Dataset, episodes: Array) -> None:
        self._data, self.episodes = data, episodes
        lengths = np.diff(data.end, prepend=-1)[episodes]
        self.end = np.cumsum(lengths) - 1
        self._offset = data.end[episodes] - self.end
        self.digest = sha256(data.digest.encode() + episodes.astype("<i8").tobytes())

    def __len__(self) -> int:
        """Steps."""
        return int(self.end[-1]) + 1

    @property
    def about(self) -> Mapping[str, Any]:
        return self._data.about

    @property
    def names(self) -> tuple[str, ...]:
        """See `Dataset.names`."""
        return self._data.names

    def rows(self, names: Iterable[str], index: Array) -> dict[str, Array]:
        """See `Dataset.rows`; `index` has numbers of the part."""
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
    """Splits the episodes into those that are learned from and those that are held out.

    Which ones are held out follows from the seed; those of a smaller share are among those of a larger one.

    Args:
      data: all of it.
      share: of the episodes that are held out, `policy.other.holdout`: at least one episode. 0: none.
      seed: of the run.
    Returns:
      (what is learned from, what is held out); without a share the data themselves and None.
    Raises:
      DataError: there is only one episode.
    """
    if not share:
        return data, None
    count = len(data.end)
    held = max(1, round(share * count))
    if held >= count:
        raise DataError(
            f"policy.other.holdout={share:g} of {count} recorded episode{'s' if count > 1 else ''} leaves none to "
            "learn from: lower it, or record more episodes"
        )
    order = SeedStreams(seed).generator("holdout").permutation(count)
    return DatasetPart(data, np.sort(order[held:])), DatasetPart(data, np.sort(order[:held]))
