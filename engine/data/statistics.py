"""Running mean and variance, and the normalization that follows from them."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array, StateDict

EPSILON = 1e-8
"""Added to variances, so that a number that never changes can be divided by its deviation."""
_ROWS = 256
"""Number of images whose squares are summed at a time; the sums of up to 2^16 images fit into uint32."""


class RunningMoments:
    """Mean and variance of a stream of batches, merged in float64 (Chan et al., 1979, parallel variance)."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = 0

    @classmethod
    def of(cls, batch: Array) -> RunningMoments:
        """The moments of one batch ``(B, *shape)``; B may be 0."""
        found = cls(batch.shape[1:])
        found.count = len(batch)
        if found.count and batch.dtype == np.uint8:
            found.mean, found.var = _of_bytes(batch)
        elif found.count:
            found.mean, found.var = batch.mean(axis=0, dtype=np.float64), batch.var(axis=0, dtype=np.float64)
        return found

    def update(self, batch: Array) -> None:
        """Updates mean and variance with a batch ``(B, *shape)``; B may be 0."""
        self.merge(self.of(batch))

    def merge(self, other: RunningMoments) -> None:
        """Updates mean and variance with the moments of other samples, of which there may be none."""
        if self.count == 0 or other.count == 0:
            if other.count:
                self.mean, self.var, self.count = other.mean, other.var, other.count
            return
        total = self.count + other.count
        delta = other.mean - self.mean
        self.mean = self.mean + delta * (other.count / total)
        between = delta**2 * (self.count * other.count / total)
        self.var = (self.var * self.count + other.var * other.count + between) / total
        self.count = total

    def zero_keeping(self) -> tuple[Array, Array]:
        """Center c and factor s of the normalization ``(x - c) s``, which keeps zero at zero where zero is common.

            w = clip(|mean| / (2 std) - 1, 0, 1)
            c = w mean
            s = 1 / sqrt(std^2 + (mean - c)^2)

        The root mean square of the result is 1. Up to a mean of two deviations, zero is a usual value and stays zero,
        as in an empty place, whose emptiness would otherwise differ from number to number. From four on, the number has
        an offset, and is centred. In between the center moves evenly, so one late zero changes hardly anything.

        Returns:
          c and s, float64 of the shape of the mean.
        """
        std = np.sqrt(self.var + EPSILON)
        center = np.clip(np.abs(self.mean) / (2.0 * std) - 1.0, 0.0, 1.0) * self.mean
        return center, 1.0 / np.hypot(std, self.mean - center)

    def state_dict(self) -> StateDict:
        return {"mean": np.array(self.mean), "var": np.array(self.var), "count": self.count}

    def load_state_dict(self, state: StateDict) -> None:
        self.mean = np.array(state["mean"], np.float64)
        self.var = np.array(state["var"], np.float64)
        self.count = int(state["count"])


def _of_bytes(batch: Array) -> tuple[Array, Array]:
    """Mean and variance of uint8 rows ``(B, ...)``, by exact sums over blocks of rows. Converted to float64, images
    would take eight times the memory and several times as long."""
    total, squares = (np.zeros(batch.shape[1:], np.uint64) for _ in range(2))
    for start in range(0, len(batch), _ROWS):
        rows = batch[start : start + _ROWS]
        total += rows.sum(axis=0, dtype=np.uint32)
        squares += np.square(rows, dtype=np.uint16).sum(axis=0, dtype=np.uint32)
    mean = total / len(batch)
    return mean, squares / len(batch) - mean**2
