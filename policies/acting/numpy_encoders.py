"""Encoders of observations in NumPy, see `networks.encoder` and `networks.policy_value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import ACTIVATIONS, Encoder, Layer
from minding.policies.kernels.library import Call, choose_onednn


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


class ConvNet:
    """Convolutions with ReLU over images ``(B, C, H, W)``, then a linear layer, by this package's kernels.

    Args:
      shape: shape ``(C, H, W)`` of an image.
      convolutions: weight ``(O, C, K, K)``, bias ``(O,)`` and stride of each convolution.
      linear: the linear layer.
      dtype: dtype of the images, 'uint8' or 'float32'.
    """

    def __init__(
        self, shape: tuple[int, ...], convolutions: Sequence[tuple[Array, Array, int]], linear: Layer, dtype: str
    ) -> None:
        self.shape, self.convolutions, self.linear, self.dtype = shape, list(convolutions), linear, dtype
        self.geometries = [
            np.array([stride, 0, k > 0, k < len(self.convolutions) - 1, 1], np.int32)
            for k, (_, _, stride) in enumerate(self.convolutions)
        ]
        self.calls: dict[int, list[tuple[Call, tuple[int, ...]]]] = {}
        choose_onednn()

    def __call__(self, x: Array) -> Array:
        x = np.ascontiguousarray(x, self.dtype).reshape(-1, *self.shape)
        batch = len(x)
        if batch not in self.calls:
            self.calls[batch] = self._calls(batch)
        for (weight, bias, _), geometry, (call, shape) in zip(self.convolutions, self.geometries, self.calls[batch]):
            y = np.empty(shape, np.float32)
            call(geometry, x, weight, bias, y)
            x = y
        features = self.linear(x.reshape(batch, -1))
        return np.maximum(features, 0.0, out=features)

    def __reduce__(self) -> tuple[Any, ...]:
        # Calls hold addresses of this process.
        return ConvNet, (self.shape, self.convolutions, self.linear, self.dtype)

    def _calls(self, batch: int) -> list[tuple[Call, tuple[int, ...]]]:
        """The kernel of each convolution for this number of images, with the shape of its result."""
        calls: list[tuple[Call, tuple[int, ...]]] = []
        dtype, given, (rows, columns) = self.dtype, (batch, *self.shape), self.shape[1:]
        for k, (weight, bias, stride) in enumerate(self.convolutions):
            rows, columns = ((side - weight.shape[2]) // stride + 1 for side in (rows, columns))
            filters, last = weight.shape[0], k == len(self.convolutions) - 1
            out = (batch, filters, rows, columns) if last else (batch, rows, columns, filters)
            inputs = [((5,), "int32"), (given, dtype), (weight.shape, "float32"), (bias.shape, "float32")]
            calls.append((Call("convolve", inputs, out), out))
            given, dtype = out, "float32"
        return calls


class ImageDecoder:
    """A linear layer with ReLU, then transposed convolutions with ReLU in between: rows of pixels ``(B, C H W)``.

    Args:
      begun: channels, rows and columns that the first convolution takes.
      steps: the convolutions, each as weight ``(O, C, K, K)``, bias ``(C,)``, height and width of its result, and
        stride.
      linear: the linear layer.
    """

    def __init__(
        self,
        begun: tuple[int, ...],
        steps: Sequence[tuple[Array, Array, tuple[int, int], int]],
        linear: Layer,
    ) -> None:
        self.begun, self.steps, self.linear = begun, list(steps), linear

    def __call__(self, x: Array) -> Array:
        y: Array = np.maximum(self.linear(x), 0.0).reshape(-1, *self.begun)
        for k, (weight, bias, size, stride) in enumerate(self.steps):
            (channels, kernel), (rows, columns) = weight.shape[1:3], y.shape[2:]
            image = np.zeros((len(y), channels, *size), np.float32)
            for i in range(kernel):
                for j in range(kernel):
                    reached = image[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
                    reached += np.tensordot(y, weight[:, :, i, j], (1, 0)).transpose(0, 3, 1, 2)
            image += bias[:, None, None]
            y = image if k == len(self.steps) - 1 else np.maximum(image, 0.0, out=image)
        return y.reshape(len(y), -1)


_BLOCK = 16
"""Number of positions per block."""


class Convolution:
    """3x3 convolution with zero padding of 1.

    Args:
      weight: ``(filters, channels, 3, 3)``.
      bias: ``(filters,)``.
    """

    def __init__(self, weight: Array, bias: Array) -> None:
        self.weight, self.bias = weight, bias

    def matrix(self) -> Array:
        """The weights as ``(9 * channels, filters)``: a copy of the current ones, which learning changes in place."""
        return np.ascontiguousarray(self.weight.transpose(2, 3, 1, 0)).reshape(-1, len(self.weight))

    def into(self, bordered: Array, matrix: Array) -> Array:
        """The result ``(B, H, W, filters)`` for padded input ``(B, H + 2, W + 2, channels)`` and weights `matrix`."""
        count, height, width, channels = bordered.shape
        height, width = height - 2, width - 2
        around = np.empty((count, height, width, 9, channels), np.float32)
        for k in range(9):
            row, column = divmod(k, 3)
            around[:, :, :, k] = bordered[:, row : row + height, column : column + width]
        y: Array = around.reshape(-1, 9 * channels) @ matrix
        y += self.bias
        return y.reshape(count, height, width, -1)


class ResidualTower:
    """Residual tower in NumPy, see `networks.policy_value.ResidualTower`."""

    def __init__(self, place: int, stem: Convolution, blocks: Sequence[tuple[Convolution, Convolution]]) -> None:
        self.place, self.stem, self.blocks = place, stem, list(blocks)

    def __call__(self, leaves: Sequence[Array]) -> Array:
        """Features ``(B, channels * H * W)`` of the planes ``(B, C, H, W)``, which are leaf number `place`."""
        planes = leaves[self.place]
        stem = self.stem.matrix()
        blocks = [(a, a.matrix(), b, b.matrix()) for a, b in self.blocks]
        count, channels = len(planes), stem.shape[1]
        height, width = planes.shape[2:]
        features = np.empty((count, channels, height, width), np.float32)
        for start in range(0, count, _BLOCK):
            rows = slice(start, min(start + _BLOCK, count))
            x = np.maximum(self.stem.into(_bordered(planes[rows].transpose(0, 2, 3, 1)), stem), 0.0)
            for first, first_matrix, second, second_matrix in blocks:
                between = first.into(_bordered(x), first_matrix)
                np.maximum(between, 0.0, between)
                y = second.into(_bordered(between), second_matrix)
                y += x
                x = np.maximum(y, 0.0, y)
            features[rows] = x.transpose(0, 3, 1, 2)
        return features.reshape(count, -1)


def _bordered(x: Array) -> Array:
    """Pads positions ``(B, H, W, C)`` with a border of zeros."""
    count, height, width, channels = x.shape
    bordered = np.zeros((count, height + 2, width + 2, channels), np.float32)
    bordered[:, 1:-1, 1:-1] = x
    return bordered
