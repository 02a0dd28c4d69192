"""Uniform replay (Lin, 1992; Mnih et al., 2015, https://doi.org/10.1038/nature14236)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.ring import Ring
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class UniformBuffer:
    """A ring of transitions that samples every stored row with the same probability, with replacement.

    Args:
      capacity: number of transitions kept; the oldest is overwritten first.
      fields: name -> Field, usually ``policy.learn_mode.fields``.
      images_once: store each image once: images of `next_obs` are read from the following row. Rows then have to be
        pushed by a `data_pusher`, which records their order.
      seed: seed of the sampling stream.
    """

    def __init__(self, capacity: int, fields: Mapping[str, Field], *, images_once: bool = False, seed: int = 0) -> None:
        self.ring = Ring(capacity, RowLayout(fields, images_once=images_once))
        self.capacity = capacity
        self._rng = SeedStreams(seed).generator("buffer")

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    @property
    def takes_order(self) -> bool:
        """Whether new rows bring `engine.buffers.ring.ORDER`."""
        return self.ring.links is not None

    def __len__(self) -> int:
        return len(self.ring)

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends transitions, one array ``(n, *shape)`` per field."""
        self.ring.push(transitions)

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size`; the rows themselves are gathered on the device.

        Raises:
          ConfigError: if the buffer is empty. Check `len(buffer)` first.
        """
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        index = self._rng.integers(0, len(self), size=(updates, batch_size), dtype=np.int32)
        return self.ring.batch(index)

    def state_dict(self) -> StateDict:
        return {"ring": self.ring.state_dict(), "rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        restore_generator(self._rng, state["rng"])
