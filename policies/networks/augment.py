"""Augmentation of images in learning."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.data.observation import Leaf
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array


class RandomShift(nn.Cell):
    """Moves each image by a few pixels; those that come in are copies of the pixels at the edge (Yarats et al., 2021,
    https://arxiv.org/abs/2107.09645, section 3.1).

        x'[c, i, j] = x[c, clip(i + s_0, 0, H - 1), clip(j + s_1, 0, W - 1)],   s_0, s_1 in -pixels, ..., pixels
    """

    def __init__(self, leaves: Sequence[Leaf], pixels: int) -> None:
        super().__init__()
        self.pixels = pixels
        self.sizes = [tuple(leaf.space["shape"]) if leaf.is_image else () for leaf in leaves]
        self.steps = [
            tuple(ms.Tensor(np.arange(size, dtype=np.int32)[None]) for size in shape) if shape else ()
            for shape in self.sizes
        ]

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Shifts of observation and successor, int32 ``(*shape, 4)``."""
        return rng.integers(-self.pixels, self.pixels, (*shape, 4), np.int32, endpoint=True)

    def construct(self, leaves, shift, first):
        """The leaves (B, ...) with moved images.

        Args:
          shift: numbers of `draw`, int32 (B, 4).
        """
        made: Any = ()
        for k in range(len(self.sizes)):
            x = leaves[k]
            made = (*made, self.moved(x, k, shift, first) if len(self.sizes[k]) > 0 else x)
        return made

    def moved(self, x, k, shift, first):
        (channels, height, width), rows = self.sizes[k], x.shape[0]
        i, j = self.within(k, 1, shift, first), self.within(k, 2, shift, first + 1)
        # Places among all pixels of the batch.
        image = ops.Reshape()(ops.Range()(0, rows * channels, 1), (rows, channels, 1, 1)) * (height * width)
        places = image + ops.Reshape()(i * width, (rows, 1, height, 1)) + ops.Reshape()(j, (rows, 1, 1, width))
        return ops.Reshape()(ops.Gather()(ops.Reshape()(x, (-1,)), places, 0), x.shape)

    def within(self, k, axis, shift, place):
        """Places (B, size) along an axis of the image, from which its pixels come."""
        moved = self.steps[k][axis] + ops.Slice()(shift, (0, place), (shift.shape[0], 1))
        return ops.Minimum()(ops.Maximum()(moved, 0), self.sizes[k][axis] - 1)
