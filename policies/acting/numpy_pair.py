"""Two NumPy networks of the same sizes, computed together: in small networks most time goes into calling NumPy."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from numpy.lib.stride_tricks import as_strided

from minding.engine.types import Array
from minding.policies.acting.numpy_norm import normalize_rows

if TYPE_CHECKING:
    from minding.policies.acting.numpy_layers import MLP


class MLPPair:
    """Two MLPs of the same sizes for the same input, ``(B, F)`` to both outputs, with half as many NumPy calls.

    Args:
      first, second: the MLPs.
    """

    def __init__(self, first: MLP, second: MLP) -> None:
        self.both = first, second
        self.layers = [(_beside(w, v), _beside(b, c)[:, None]) for (w, b), (v, c) in zip(first.layers, second.layers)]
        norms = zip(first.norms, second.norms)
        self.norms = [(_beside(w, v)[:, None], _beside(b, c)[:, None]) for (w, b), (v, c) in norms]
        self.activation = first.activation

    def __call__(self, x: Array) -> tuple[Array, Array]:
        activation = self.activation
        if not self.layers:
            return x, x
        for (transposed, bias), norm in zip_longest(self.layers, self.norms):
            x = x @ transposed
            x += bias
            if norm is not None:
                normalize_rows(x, *norm)
            activation(x, x)
        return x[0], x[1]

    def __reduce__(self) -> tuple[Any, ...]:
        # The paired views depend on the arrays' addresses, which differ in another process.
        return MLPPair, self.both


def _beside(a: Array, b: Array) -> Array:
    """A view of two arrays of the same shape as one array with a leading axis of 2; the arrays must outlive it."""
    return as_strided(a, (2, *a.shape), (b.ctypes.data - a.ctypes.data, *a.strides))
