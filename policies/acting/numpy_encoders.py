"""Encoders of observations in NumPy, see `networks.encoder` and `networks.policy_value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import ACTIVATIONS, Encoder, Layer, Linear
from minding.policies.kernels.library import Call, Layers, choose_onednn, compiled


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
    """One encoder per observation leaf; the features of several leaves are joined.

    Args:
      encoders: one encoder per leaf.
      projections: the linear layer after each encoder; None without one, as for images and a single leaf.
      activation: activation after each projection, one of `ACTIVATIONS`.
      places: index of each encoder's leaf among the leaves of the observation.
    """

    def __init__(
        self, encoders: Sequence[Layer], projections: Sequence[Layer | None], activation: str, places: Sequence[int]
    ) -> None:
        self.encoders, self.projections, self.places = list(encoders), list(projections), list(places)
        self.activation = ACTIVATIONS[activation]

    def __call__(self, leaves: Sequence[Array]) -> Array:
        parts = []
        for project, encode, k in zip(self.projections, self.encoders, self.places):
            part = encode(leaves[k])
            if project is not None:
                part = project(part)
                part = self.activation(part, part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


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


_SIZES = 8
"""Numbers of images for which memory is kept."""


class ConvNet:
    """Convolutions with ReLU over images ``(B, C, H, W)``, then a linear layer, by this package's kernels.

    Args:
      shape: shape ``(C, H, W)`` of an image.
      convolutions: weight ``(O, C, K, K)``, bias ``(O,)`` and stride of each convolution.
      linear: the linear layer.
      dtype: dtype of the images, 'uint8' or 'float32'.
    """

    def __init__(
        self, shape: tuple[int, ...], convolutions: Sequence[tuple[Array, Array, int]], linear: Linear, dtype: str
    ) -> None:
        self.shape, self.convolutions, self.linear, self.dtype = shape, list(convolutions), linear, dtype
        self.features = Layers([(linear.transposed.T, linear.bias, "relu")])
        self.geometries = [
            np.array([stride, 0, k > 0, k < len(self.convolutions) - 1, 1], np.int32)
            for k, (_, _, stride) in enumerate(self.convolutions)
        ]
        self.calls: dict[int, tuple[list[Call], int]] = {}
        choose_onednn()

    def __call__(self, x: Array) -> Array:
        x = np.ascontiguousarray(x, self.dtype).reshape(-1, *self.shape)
        batch = len(x)
        if batch not in self.calls:
            if len(self.calls) == _SIZES:
                self.calls.clear()
            self.calls[batch] = self._calls(batch)
        (first, *others), address = self.calls[batch]
        first(x)
        for call in others:
            call()
        return self.features.at(address, batch)

    def __reduce__(self) -> tuple[Any, ...]:
        # Calls hold addresses of this process.
        return ConvNet, (self.shape, self.convolutions, self.linear, self.dtype)

    def _calls(self, batch: int) -> tuple[list[Call], int]:
        """The kernel of each convolution for this number of images, and the address of the last one's result. Each
        writes into memory of its own, from which the next one reads."""
        calls: list[Call] = []
        given: Array | None = None
        rows, columns = self.shape[1:]
        for k, (weight, bias, stride) in enumerate(self.convolutions):
            rows, columns = ((side - weight.shape[2]) // stride + 1 for side in (rows, columns))
            filters, last = weight.shape[0], k == len(self.convolutions) - 1
            y = np.empty((batch, filters, rows, columns) if last else (batch, rows, columns, filters), np.float32)
            x = ((batch, *self.shape), self.dtype) if given is None else given
            calls.append(Call("convolve", [self.geometries[k], x, weight, bias], y))
            given = y
        assert given is not None
        return calls, given.ctypes.data


_BLOCK = 16
"""Number of positions per block."""


class Convolution:
    """3x3 convolution with zero padding of 1, by this package's kernel if it is compiled.

    Args:
      weight: ``(filters, channels, 3, 3)``.
      bias: ``(filters,)``.
      relu: whether a ReLU follows.
    """

    def __init__(self, weight: Array, bias: Array, relu: bool) -> None:
        self.weight, self.bias, self.relu = weight, bias, relu
        self.geometry = np.array([1, 1, 1, 1, relu], np.int32)
        self.calls: dict[tuple[int, ...], Call] = {}
        if compiled():
            choose_onednn()

    def __call__(self, x: Array) -> Array:
        """The result ``(B, H, W, filters)`` for float32 ``(B, H, W, channels)``."""
        shape = (*x.shape[:3], len(self.weight))
        if not compiled():
            (height, width), padded = x.shape[1:3], np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            shifts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
            around = np.stack(shifts, axis=-1)
            y: Array = around.reshape(-1, self.weight[0].size) @ self.weight.reshape(len(self.weight), -1).T
            y += self.bias
            return (np.maximum(y, 0.0, y) if self.relu else y).reshape(shape)
        if shape not in self.calls:
            self.calls[shape] = Call("convolve", [self.geometry, (x.shape, "float32"), self.weight, self.bias], shape)
        y = np.empty(shape, np.float32)
        self.calls[shape](np.ascontiguousarray(x), y)
        return y

    def __reduce__(self) -> tuple[Any, ...]:
        # Calls hold addresses of this process.
        return Convolution, (self.weight, self.bias, self.relu)


class ResidualTower:
    """Residual tower in NumPy, see `networks.policy_value.ResidualTower`."""

    def __init__(self, place: int, stem: Convolution, blocks: Sequence[tuple[Convolution, Convolution]]) -> None:
        self.place, self.stem, self.blocks = place, stem, list(blocks)

    def __call__(self, leaves: Sequence[Array]) -> Array:
        """Features ``(B, channels * H * W)`` of the planes ``(B, C, H, W)``, which are leaf number `place`."""
        planes = leaves[self.place]
        count, _, height, width = planes.shape
        features = np.empty((count, len(self.stem.weight), height, width), np.float32)
        for start in range(0, count, _BLOCK):
            rows = slice(start, min(start + _BLOCK, count))
            x = self.stem(planes[rows].transpose(0, 2, 3, 1).astype(np.float32))
            for first, second in self.blocks:
                y = second(first(x))
                y += x
                x = np.maximum(y, 0.0, y)
            features[rows] = x.transpose(0, 3, 1, 2)
        return features.reshape(count, -1)
