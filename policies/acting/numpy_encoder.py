"""Encoders of observations in NumPy, see `acting.numpy_layers` and `networks.encoder`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import ACTIVATIONS, Encoder, Layer


class Normalizer:
    """Scales to zero mean and unit variance, clipped to +-10; `mean` and `scale` ``(D,)``."""

    def __init__(self, mean: Array, scale: Array) -> None:
        self.mean, self.scale = mean, scale

    def __call__(self, x: Array) -> Array:
        y: Array = (x - self.mean) * self.scale
        return np.clip(y, -10.0, 10.0, out=y)


class Vector:
    """Numbers of any shape, flattened to ``(B, size)``, and normalized if a normalizer is given."""

    def __init__(self, size: int, normalizer: Normalizer | None) -> None:
        self.size, self.normalizer = size, normalizer

    def __call__(self, x: Array) -> Array:
        flat = x.reshape(-1, self.size).astype(np.float32, copy=False)
        return flat if self.normalizer is None else self.normalizer(flat)


class OneHot:
    """Integers ``(B,)`` or ``(B, K)`` as joined one-hot vectors ``(B, sum of sizes)``."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.tables = [np.eye(n, dtype=np.float32) for n in sizes]

    def __call__(self, x: Array) -> Array:
        columns = x.reshape(-1, len(self.tables))
        return np.concatenate([table[columns[:, k]] for k, table in enumerate(self.tables)], axis=-1)


class ObsEncoder:
    """One encoder per observation leaf; the features of several leaves are joined, each after its own linear layer.

    Args:
      encoders: one encoder per leaf.
      projections: one linear layer per leaf; empty for a single leaf.
      activation: activation after each projection, one of `ACTIVATIONS`.
      places: index of each encoder's leaf among the leaves of the observation.
    """

    def __init__(
        self, encoders: Sequence[Layer], projections: Sequence[Layer], activation: str, places: Sequence[int]
    ) -> None:
        self.encoders, self.projections, self.places = list(encoders), list(projections), list(places)
        self.activation = ACTIVATIONS[activation]

    def __call__(self, leaves: Sequence[Array]) -> Array:
        if not self.projections:
            return self.encoders[0](leaves[self.places[0]])
        parts = [project(encode(leaves[k])) for project, encode, k in zip(self.projections, self.encoders, self.places)]
        return np.concatenate([self.activation(part, part) for part in parts], axis=-1)


class OwnEncoder:
    """A user-defined encoder, applied to the leaves that are not action masks.

    Args:
      encoder: function ``[leaf (B, ...), ...] -> (B, F)``.
      places: indices of its leaves among the leaves of the observation.
    """

    def __init__(self, encoder: Encoder, places: Sequence[int]) -> None:
        self.encoder, self.places = encoder, list(places)

    def __call__(self, leaves: Sequence[Array]) -> Array:
        return self.encoder([leaves[k] for k in self.places])
