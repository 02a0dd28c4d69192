"""The layers of acting in NumPy, without MindSpore; `compositions` are made of them.

The cells of `policies.networks` create these objects (``cell.host()``) over zero-copy views of their live parameters,
so that acting follows training. All of them can be pickled. Observation leaves arrive as environments return them,
``(B, ...)`` each; all other arrays are float32.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from minding.engine.types import Array
from minding.policies.acting import arrays
from minding.policies.kernels.library import ACTIVATIONS as KERNELS
from minding.policies.kernels.library import Layers, compiled

Outputs = tuple[Array, ...]
Layer = Callable[[Array], Array]
Head = Callable[[Array], Outputs]
Encoder = Callable[[Sequence[Array]], Array]
"""The leaves of an observation, ``(B, ...)`` each, to their features ``(B, F)``."""
ILLEGAL = -1e30
"""Score of an illegal action. It makes the probability 0; its product with 0 and differences from it are not NaN."""
Activation = Callable[[Array, Array], Array]
"""(input, array that receives the output) -> output."""


def _relu(x: Array, out: Array) -> Array:
    return np.maximum(x, 0.0, out)


def _sigmoid(x: Array) -> Array:
    # Below -88, exp(-x) overflows float32. At -80 the sigmoid is 2e-35, which is 0 for an activation.
    return 1.0 / (1.0 + np.exp(-np.maximum(x, -80.0)))


def _silu(x: Array, out: Array) -> Array:
    return np.multiply(x, _sigmoid(x), out)


def _gelu(x: Array, out: Array) -> Array:
    return np.multiply(x, _sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)), out)


def _elu(x: Array, out: Array) -> Array:
    return np.add(np.maximum(x, 0.0), np.expm1(np.minimum(x, 0.0)), out)


ACTIVATIONS: dict[str, Activation] = {"relu": _relu, "tanh": np.tanh, "silu": _silu, "gelu": _gelu, "elu": _elu}
EPSILON = 1e-5
"""Number that is added to the variance of a row."""


class Composition:
    """A network or a part of one that is described once for MindSpore and NumPy, see `compositions`.

    A subclass names its parts, which are layers, arrays and settings, in `made_of`. In NumPy they are given by these
    names; a cell that is derived from the subclass has attributes of these names, from which it makes the NumPy form.
    """

    xp: Any = arrays
    made_of = ""

    def __init__(self, **parts: Any) -> None:
        for name, part in parts.items():
            setattr(self, name, part)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    def part_names(cls) -> set[str]:
        return {name for kind in cls.__mro__ for name in vars(kind).get("made_of", "").split()}


class Activated(Composition):
    """Base of compositions that apply an activation, one of `ACTIVATIONS`, to results of layers."""

    made_of = "activation_name"

    def activate(self, x: Array) -> Array:
        return ACTIVATIONS[self.activation_name](x, x)


class LayerNorm:
    """Rows ``(..., H)`` with zero mean and unit variance, times `weight` and plus `bias`, both ``(H,)``; see
    `networks.layers`."""

    def __init__(self, weight: Array, bias: Array, epsilon: float = EPSILON) -> None:
        self.weight, self.bias, self.epsilon = weight, bias, epsilon

    def __call__(self, x: Array) -> Array:
        return normalize_rows(x, self.weight, self.bias, self.epsilon)


def normalize_rows(x: Array, weight: Array, bias: Array, epsilon: float = EPSILON) -> Array:
    """Normalizes rows, see `LayerNorm`."""
    x = x - x.mean(axis=-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + epsilon)
    x *= weight
    x += bias
    return x


_LARGE = 1 << 13
"""Weights from which a kernel computes a single layer faster than NumPy."""


class Linear:
    """y = x W^T + b.

    Args:
      weight: ``(out, in)``.
      bias: ``(out,)``.
    """

    def __init__(self, weight: Array, bias: Array) -> None:
        self.transposed, self.bias = weight.T, bias
        self.kernel = _kernel_of([self], "none") if weight.size >= _LARGE else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.transposed.T, self.bias)

    def __call__(self, x: Array) -> Array:
        if self.kernel is not None:
            return self.kernel(x)
        y: Array = x @ self.transposed
        y += self.bias
        return y


class ScalarLinear(Linear):
    """`Linear` with one output, ``(B,)``."""

    def __call__(self, x: Array) -> Array:
        y: Array = x @ self.transposed
        y += self.bias
        return y[:, 0]


class Hidden:
    """Base of hidden layers."""

    def into(self: Any, head, x, seed=None):
        """``head(self(x))`` for a linear head; compiled, both are one kernel if possible."""
        return head(self(x))


def _kernel_of(layers: Sequence[Linear], activation: str) -> Layers | None:
    """The kernel that computes linear layers with an activation after each. It holds addresses of this process."""
    given = [(layer.transposed.T, layer.bias, activation) for layer in layers]
    fits = all(weight.dtype == np.float32 and weight.flags.c_contiguous for weight, _, _ in given)
    return Layers(given) if given and fits and activation in KERNELS and compiled() else None


class MLP(Hidden):
    """Linear layers with an activation after each."""

    def __init__(self, layers: Sequence[Linear], activation: str, norms: Sequence[LayerNorm] = ()) -> None:
        # Arrays instead of layer objects save one Python call per layer.
        self.layers = [(layer.transposed, layer.bias) for layer in layers]
        self.norms = [(norm.weight, norm.bias) for norm in norms]
        self.name, self.activation = activation, ACTIVATIONS[activation]
        self.kernel = None if norms else _kernel_of(layers, activation)

    def __reduce__(self) -> tuple[Any, ...]:
        layers, norms = [Linear(x.T, b) for x, b in self.layers], [LayerNorm(w, b) for w, b in self.norms]
        return MLP, (layers, self.name, norms)

    def __call__(self, x: Array) -> Array:
        if self.kernel is not None:
            return self.kernel(x)
        activation = self.activation
        for (transposed, bias), norm in zip_longest(self.layers, self.norms):
            x = x @ transposed
            x += bias
            if norm is not None:
                x = normalize_rows(x, *norm)
            activation(x, x)
        return x


class ActionMask:
    """Logits or values ``(B, A)``, replaced by `ILLEGAL` where the mask, leaf number `place`, forbids the action."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, scores: Array, leaves: Sequence[Array]) -> Array:
        return np.where(leaves[self.place].astype(bool, copy=False), scores, np.float32(ILLEGAL))


REMEMBERED = 0.5
"""A step of a `GTrXL`'s memory belongs to the episode if its mark, 0 or 1, exceeds this."""


class GTrXLLayer:
    """One step of a layer: input ``(B, D)`` and inputs in the M steps before ``(B, M, D)`` to features ``(B, D)``; see
    `networks.recurrent`.

    Args:
      position: matrix of the encoded distances, ``(D, D)``.
      offset: what queries of positions have beyond those of contents, ``(D,)``.
    """

    def __init__(self, heads: int, parts: Sequence[Any], position: Array, offset: Array) -> None:
        self.heads, self.parts, self.position, self.offset = heads, tuple(parts), position, offset

    def __call__(self, x: Array, before: Array, forbidden: Array, distances: Array) -> Array:
        """The features ``(B, D)``. `forbidden`: ``(B, 1, M + 1)``, `ILLEGAL` for steps that are not seen, else 0;
        `distances`: encodings of the distances M to 0, ``(M + 1, D)``."""
        norm, second_norm, to_query, to_keys_values, joined, wide, narrow, gate, second_gate = self.parts
        count, steps, size = len(x), len(distances), x.shape[1]
        part = size // self.heads
        normed = norm(np.concatenate([before, x[:, None]], axis=1).reshape(-1, size))
        both = to_keys_values(normed).reshape(count, steps, 2, self.heads, part)
        query = to_query(np.ascontiguousarray(normed.reshape(count, steps, size)[:, -1]))
        # (B, H, 1, d) times (B, H, d, M + 1), and (H, B, d) times (H, d, M + 1).
        content = query.reshape(count, self.heads, 1, part) @ both[:, :, 0].transpose(0, 2, 3, 1)
        place = (distances @ self.position.T).reshape(steps, self.heads, part).transpose(1, 2, 0)
        at = (query + self.offset).reshape(count, self.heads, part).transpose(1, 0, 2)
        scores = (content[:, :, 0] + (at @ place).transpose(1, 0, 2)) * np.float32(part**-0.5) + forbidden
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        found = (weights[:, :, None] @ both[:, :, 1].transpose(0, 2, 1, 3)).reshape(count, size)
        x = gate.once(np.maximum(joined(found), 0.0), x)
        return second_gate.once(np.maximum(narrow(wide(second_norm(x))), 0.0), x)  # type: ignore[no-any-return]


class GTrXL:
    """One step of a gated transformer: inputs ``(B, F)`` and memory rows ``(B, S)`` to features ``(B, D)`` and new
    memory rows, see `networks.recurrent`.

    Args:
      inputs: layer that computes the input of the first of the `layers`, ``(B, D)``.
      distances: encodings of the distances M to 0, ``(M + 1, D)``.
    """

    def __init__(self, inputs: Linear, layers: Sequence[GTrXLLayer], distances: Array) -> None:
        self.inputs, self.layers, self.distances = inputs, list(layers), distances
        self.length, self.units = len(distances) - 1, distances.shape[1]
        self.size = self.units + self.length * (1 + len(self.layers) * self.units)

    def __call__(self, x: Array, rows: Array) -> tuple[Array, Array]:
        size, length, count = self.units, self.length, len(rows)
        first = size + length
        there = rows[:, size:first] > REMEMBERED
        forbidden = np.zeros((count, 1, length + 1), np.float32)
        forbidden[:, 0, :length] = np.where(there, np.float32(0.0), np.float32(ILLEGAL))
        new = np.empty_like(rows)
        new[:, size : first - 1], new[:, first - 1] = rows[:, size + 1 : first], 1.0
        shape = (count, len(self.layers), length, size)
        before, after = rows[:, first:].reshape(shape), new[:, first:].reshape(shape)
        x = self.inputs(x)
        for k, layer in enumerate(self.layers):
            after[:, k, :-1], after[:, k, -1] = before[:, k, 1:], x
            x = layer(x, before[:, k], forbidden, self.distances)
        new[:, :size] = x
        return x, new
