"""Convolutions in NumPy, see `networks.encoder` and `networks.policy_value`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import Linear
from minding.policies.kernels.library import Call, Layers, choose_onednn, compiled

_SIZES = 8
"""Numbers of images for which memory is kept."""


class ConvNet:
    """Convolutions with ReLU over images ``(B, C, H, W)``, then a linear layer, by this package's kernels.

    Args:
      shape: shape ``(C, H, W)`` of an image.
      convolutions: weight ``(O, C, K, K)``, bias ``(O,)`` and stride of each convolution.
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
    """Convolution with square kernels, by this package's kernel if it is compiled.

    Args:
      weight: ``(filters, channels, K, K)``.
      bias: ``(filters,)``.
      last: whether images and results have channels last, ``(B, H, W, C)``, and not first.
    """

    def __init__(
        self, weight: Array, bias: Array, relu: bool, stride: int = 1, padding: int = 1, last: bool = True
    ) -> None:
        self.settings = (weight, bias, relu, stride, padding, last)
        self.weight, self.bias, self.relu, self.stride, self.padding, self.last = self.settings
        self.geometry = np.array([stride, padding, last, last, relu], np.int32)
        self.calls: dict[tuple[int, ...], Call] = {}
        if compiled():
            choose_onednn()

    def __call__(self, x: Array) -> Array:
        (filters, _, kernel, _), pad = self.weight.shape, self.padding
        if not compiled():
            x = x if self.last else x.transpose(0, 2, 3, 1)
            padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
            around: Array = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))  # type: ignore[call-overload]
            around = around[:, :: self.stride, :: self.stride]
            y: Array = around.reshape(-1, self.weight[0].size) @ self.weight.reshape(filters, -1).T
            y += self.bias
            y = (np.maximum(y, 0.0, y) if self.relu else y).reshape(*around.shape[:3], filters)
            return y if self.last else y.transpose(0, 3, 1, 2)
        sides = [(n + 2 * pad - kernel) // self.stride + 1 for n in (x.shape[1:3] if self.last else x.shape[2:])]
        y = np.empty((len(x), *sides, filters) if self.last else (len(x), filters, *sides), np.float32)
        if x.shape not in self.calls:
            given: list[Any] = [self.geometry, (x.shape, "float32"), self.weight, self.bias]
            self.calls[x.shape] = Call("convolve", given, y.shape)
        self.calls[x.shape](np.ascontiguousarray(x), y)
        return y

    def __reduce__(self) -> tuple[Any, ...]:
        # Calls hold addresses of this process.
        return Convolution, self.settings


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


class Steps:
    """A user's encoder, see `networks.traced`: functions that are computed one after another."""

    def __init__(self, steps: Sequence[tuple[Callable[..., Array], tuple[int, ...]]], place: int) -> None:
        self.steps, self.place = list(steps), place

    def __call__(self, leaves: Sequence[Array]) -> Array:
        # Negative places count from the end, where the leaves are.
        values: list[Any] = [*[None] * len(self.steps), *leaves]
        for k, (function, places) in enumerate(self.steps):
            values[k] = function(*[values[place] for place in places])
        result: Array = values[self.place]
        return result


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def flatten(x: Array) -> Array:
    return x.reshape(len(x), -1)


def with_number(operation: Callable[[Array, Any], Array], number: Any, x: Array) -> Array:
    """The operation of an array and a number."""
    return operation(x, number)
