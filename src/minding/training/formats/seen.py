"""A source of recorded data with a replaced description of its environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minding.engine.data.dataset import check_dataset, joined
from minding.engine.data.episode import Episode
from minding.engine.data.inferred_spaces import fitted
from minding.engine.data.references import References
from minding.training.formats.source import Source


class SeenAs:
    """The episodes of a source, converted to the spaces of another environment; episodes outside of them are damaged.

    Args:
      source: the source of the episodes.
      env: the description of the environment, see `engine.data.description.describe`.
    """

    def __init__(self, source: Source, env: Mapping[str, Any]) -> None:
        self._source, self.env = source, env

    @property
    def path(self) -> Path:
        """See `Source`."""
        return self._source.path

    @property
    def dropped(self) -> int:
        """See `Source`."""
        return self._source.dropped

    @property
    def shortened(self) -> int:
        """See `Source`."""
        return self._source.shortened

    @property
    def ambiguous(self) -> int:
        """See `Source`."""
        return self._source.ambiguous

    @property
    def references(self) -> References | None:
        """See `Source`."""
        return self._source.references

    def episodes(self) -> Iterator[Episode | ValueError]:
        """See `Source`."""
        for episode in self._source.episodes():
            if not isinstance(episode, Episode):
                yield episode
                continue
            try:
                found = fitted(episode, self.env)
                check_dataset(joined([found], {"env": self.env}), single=True, limits=True)
            except ValueError as error:
                yield error
            else:
                yield found
