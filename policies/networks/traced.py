"""The NumPy form of a user's encoder that consists of known layers.

The encoder's `construct` runs once with placeholders for arrays, which record the layers that it calls. It may do
nothing else with arrays than call layers, `astype(float32)`, and arithmetic with each other and with numbers.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from minding.engine.checkpoint.store import first_line
from minding.engine.process.runtime import ms, nn
from minding.engine.types import Array
from minding.policies.acting import arrays, numpy_encoders, numpy_layers


def traced_form(cell: Any, count: int) -> numpy_encoders.Steps:
    """The NumPy form of an encoder that takes `count` leaves."""
    steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
    try:
        result = type(cell).construct(_Self(cell), tuple(_Value(steps, k - count) for k in range(count)))
        return numpy_encoders.Steps(steps, result.place)
    except Exception as error:
        reason = f"and none is made for it: {type(error).__name__}: {first_line(error)}"
        raise AttributeError(f"'{type(cell).__name__}' object has no attribute 'host', {reason}") from error


class _Value:
    """An array in a trace: the result of step `place`, or a leaf if this is negative."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, steps: list[Any], place: int) -> None:
        self.steps, self.place = steps, place

    def then(self, function: Callable[..., Any], *others: _Value) -> _Value:
        self.steps.append((function, (self.place, *(other.place for other in others))))
        return _Value(self.steps, len(self.steps) - 1)

    def astype(self, dtype: Any) -> _Value:
        if dtype not in (ms.float32, np.float32):
            raise TypeError(f"astype({dtype})")
        return self.then(arrays.floats)

    def __bool__(self) -> bool:
        raise TypeError("its value decides what is computed")

    def __eq__(self, other: object) -> bool:
        raise TypeError("it is compared")

    def _with(self, operation: Callable[..., Any], other: Any) -> _Value:
        if isinstance(other, _Value):
            return self.then(operation, other)
        return self.then(functools.partial(numpy_encoders.with_number, operation, np.float32(other)))

    __add__ = __radd__ = functools.partialmethod(_with, operator.add)
    __mul__ = __rmul__ = functools.partialmethod(_with, operator.mul)
    __sub__ = functools.partialmethod(_with, operator.sub)
    __truediv__ = functools.partialmethod(_with, operator.truediv)


class _Self:
    """Takes the place of `self` in a cell's methods: its cells are called with placeholders."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cell, name)
        if inspect.ismethod(value) and value.__self__ is self._cell:
            return types.MethodType(value.__func__, self)
        return _callable(value)


def _callable(value: Any) -> Any:
    """A cell as a function of placeholders; other values unchanged."""
    if isinstance(value, nn.CellList):
        return [_callable(cell) for cell in value]
    if type(value) is nn.SequentialCell:
        return lambda x: functools.reduce(lambda x, cell: _callable(cell)(x), value, x)
    if type(value) in _FORMS:
        return lambda x: x.then(_FORMS[type(value)](value))
    return functools.partial(type(value).construct, _Self(value)) if isinstance(value, nn.Cell) else value


def _dense(cell: Any) -> Any:
    if cell.activation is not None:
        raise TypeError("a Dense with an activation")
    return numpy_layers.Linear(*_weights(cell))


def _conv2d(cell: Any) -> Any:
    (side, other), (stride, across) = cell.kernel_size, cell.stride
    same = side // 2 if stride == 1 and side % 2 else None
    padding = {"valid": 0, "pad": cell.padding, "same": same}[cell.pad_mode]
    plain = (side, stride, 1, (1, 1)) == (other, across, cell.group, tuple(cell.dilation))
    if not (plain and isinstance(padding, int)):
        raise TypeError("a Conv2d of another form")
    return numpy_encoders.Convolution(*_weights(cell), False, stride, padding, last=False)


def _weights(cell: Any) -> tuple[Array, Array]:
    bias = cell.bias.asnumpy() if cell.has_bias else np.zeros(cell.out_channels, np.float32)
    return cell.weight.asnumpy(), bias


def _layer_norm(cell: Any) -> Any:
    if (len(cell.normalized_shape), cell.begin_norm_axis, cell.begin_params_axis) != (1, -1, -1):
        raise TypeError("a LayerNorm of more than the last axis")
    return numpy_layers.LayerNorm(cell.gamma.asnumpy(), cell.beta.asnumpy(), cell.epsilon)


def _flatten(cell: Any) -> Any:
    if (cell.start_dim, cell.end_dim) != (1, -1):
        raise TypeError("a Flatten of some axes")
    return numpy_encoders.flatten


_FORMS: dict[type, Callable[[Any], Any]] = {
    nn.Dense: _dense,
    nn.Conv2d: _conv2d,
    nn.LayerNorm: _layer_norm,
    nn.ReLU: lambda cell: numpy_encoders.relu,
    nn.Tanh: lambda cell: np.tanh,
    nn.Flatten: _flatten,
}
