"""Folders of recorded data in minding's own format as a source of episodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from minding.engine.data.dataset import episodes_of, load_dataset
from minding.engine.data.episode import Episode
from minding.engine.data.references import References, references_of


class OwnSource:
    """A folder in minding's own format.

    Args:
      path: the folder.

    Raises:
      DataError: there are no recorded data, or they are damaged.
    """

    dropped = ambiguous = 0

    def __init__(self, path: Path) -> None:
        self.path, self._data = path, load_dataset(path, mapped=True, values=False)
        self.env = self._data.about["env"]
        # The data no longer say whether the rows of time-outs were left out.
        self.shortened = int("converted" in self._data.about)

    @property
    def references(self) -> References | None:
        """See `Source`."""
        return references_of(self._data.about)

    def episodes(self) -> Iterator[Episode | ValueError]:
        """See `Source`."""
        return episodes_of(self._data)
