"""Linear layers, normalization and multilayer perceptrons, each with a compiled and a NumPy form.

MindSpore compiles `construct`; `host()` returns the NumPy form (see `acting.numpy_layers`) over zero-copy views of the
same live parameters, so that it follows training. A test checks that both agree to 1e-5. MindSpore's sigmoid and
exponential are exact on CPU; its tanh is not (see `primitives.tanh`).

Initial weights are drawn from a NumPy Generator, so that the run's seed determines them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.acting import compositions, numpy_layers
from minding.policies.ops import arrays, primitives


def orthogonal(shape: tuple[int, int], gain: float, rng: np.random.Generator) -> Array:
    """Orthogonal matrix times `gain` (Saxe et al., 2014, https://arxiv.org/abs/1312.6120), float32 ``(out, in)``."""
    rows, cols = shape
    normal = rng.standard_normal((max(rows, cols), min(rows, cols)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diag(r))
    return np.ascontiguousarray(gain * (q if rows >= cols else q.T), dtype=np.float32)


def fan_in_uniform(shape: Sequence[int], fan_in: int, rng: np.random.Generator) -> Array:
    """Numbers uniform in +-1/sqrt(fan_in), float32, the usual initial weights and biases of linear and convolution
    layers."""
    bound = 1.0 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, size=shape).astype(np.float32)


GELU_SLOPE, GELU_CUBE = 1.5957691216057308, 0.044715
"""2 sqrt(2 / pi), and the factor of the cube, in the form of GELU without error function."""
FUSED = ("relu", "tanh")
"""Activations that one kernel computes together with the layer before them, see `networks.fused`."""


class Tanh(nn.Cell):
    """tanh(x), see `primitives.tanh`."""

    def construct(self, x):
        return primitives.tanh(x)


class SiLU(nn.Cell):
    """x sigmoid(x) (Elfwing et al., 2018, https://arxiv.org/abs/1702.03118)."""

    def construct(self, x):
        return x * ops.Sigmoid()(x)


class GELU(nn.Cell):
    """x Phi(x), approximated by 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016,
    https://arxiv.org/abs/1606.08415, section 2)."""

    def construct(self, x):
        return x * ops.Sigmoid()(GELU_SLOPE * (x + GELU_CUBE * x * x * x))


class ELU(nn.Cell):
    """x where it is positive, else exp(x) - 1 (Clevert et al., 2016, https://arxiv.org/abs/1511.07289, eq. 15)."""

    def construct(self, x):
        # Without the minimum, the exponential of a large number would make the gradient NaN, although it is not used.
        return ops.ReLU()(x) + ops.Exp()(ops.Minimum()(x, 0.0)) - 1.0


ACTIVATIONS: dict[str, Callable[[], nn.Cell]] = {"relu": ops.ReLU, "tanh": Tanh, "silu": SiLU, "gelu": GELU, "elu": ELU}


class Cells:
    """The parameters of several cells together, for optimizer and target.

    This is not a cell itself, because a cell would rename the parameters.
    """

    def __init__(self, *cells: nn.Cell | None) -> None:
        self.cells: Sequence[nn.Cell] = [cell for cell in cells if cell is not None]

    def get_parameters(self) -> Iterator[ms.Parameter]:
        return itertools.chain(*(cell.get_parameters() for cell in self.cells))

    def trainable_params(self) -> list[ms.Parameter]:
        return [p for cell in self.cells for p in cell.trainable_params()]


class Composed(nn.Cell):
    """Base of cells that compute what a composition of `acting` describes, from which they are derived, too: MindSpore
    compiles its methods, and in the NumPy form they run on the forms of the cell's parts."""

    xp = arrays
    composition: type[numpy_layers.Composition]

    def __init_subclass__(cls) -> None:
        for base in cls.__bases__:
            if issubclass(base, numpy_layers.Composition) and not issubclass(base, nn.Cell):
                cls.composition, cls.construct = base, base.__call__
                if "host" not in vars(cls):
                    cls.host = Composed.host  # type: ignore[method-assign]

    def host(self) -> Any:
        """The NumPy form: the composition, with the NumPy forms of its parts."""
        kind = self.composition
        return kind(**{name: host_of(getattr(self, name)) for name in kind.part_names()})


def host_of(part: Any) -> Any:
    """The NumPy form of a part of a network: of a cell, of a tensor (a view), of several, or a setting as it is."""
    if isinstance(part, (list, tuple, nn.CellList)):
        return [host_of(each) for each in part]
    if isinstance(part, nn.Cell):
        return part.host()
    return part.asnumpy() if isinstance(part, ms.Tensor) else part


class Linear(nn.Cell):
    """y = x W^T + b for x ``(B, in)``."""

    kernel = "none"

    def __init__(self, in_features: int, out_features: int, gain: float | None, rng: np.random.Generator) -> None:
        super().__init__()
        shape = (out_features, in_features)
        if gain is None:
            weight, bias = fan_in_uniform(shape, in_features, rng), fan_in_uniform(shape[:1], in_features, rng)
        else:
            weight, bias = orthogonal(shape, gain, rng), np.zeros(out_features, np.float32)
        self.weight = ms.Parameter(ms.Tensor(weight), name="weight")
        self.bias = ms.Parameter(ms.Tensor(bias), name="bias")
        self.matmul = ops.MatMul(transpose_b=True)
        self.add_bias = ops.BiasAdd()
        self.fused: ops.Primitive | None = None
        self.fused_after_relu: ops.Primitive | None = None

    def construct(self, x):
        if self.fused is not None:
            return self.fused(x, self.weight, self.bias)
        return self.add_bias(self.matmul(x, self.weight), self.bias)

    def host(self) -> Any:
        """The NumPy form: a `numpy_layers.Linear`, or in a subclass a form that includes the activation."""
        return numpy_layers.Linear(self.weight.asnumpy(), self.bias.asnumpy())


class ScalarLinear(Linear):
    """y = x w^T + b, one number per row: ``(B,)`` for x ``(B, in)``; see `Linear`."""

    kernel = "scalar"

    def __init__(self, in_features: int, gain: float | None, rng: np.random.Generator) -> None:
        super().__init__(in_features, 1, gain, rng)

    def construct(self, x):
        if self.fused is not None:
            return self.fused(x, self.weight, self.bias)
        return self.add_bias(self.matmul(x, self.weight), self.bias).reshape((-1,))

    def host(self) -> numpy_layers.ScalarLinear:
        return numpy_layers.ScalarLinear(self.weight.asnumpy(), self.bias.asnumpy())


class TanhLinear(Linear):
    """y = tanh(x W^T + b); see `Linear`."""

    kernel = "tanh"

    def __init__(self, in_features: int, out_features: int, gain: float | None, rng: np.random.Generator) -> None:
        super().__init__(in_features, out_features, gain, rng)
        self.activation = Tanh()

    def construct(self, x):
        if self.fused is not None:
            return self.fused(x, self.weight, self.bias)
        return self.activation(self.add_bias(self.matmul(x, self.weight), self.bias))

    def host(self) -> numpy_layers.MLP:
        return numpy_layers.MLP([super().host()], "tanh")


class Clip(nn.Cell):
    """Clips numbers of any shape to [low, high]; the gradient passes where they were inside."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.bounds = ms.Tensor(np.array([low, high], np.float32))
        self.fused: ops.Primitive | None = None

    def construct(self, x):
        if self.fused is not None:
            return self.fused(x, self.bounds)
        return ops.clamp(x, self.low, self.high)

    def host(self) -> numpy_layers.Layer:
        return functools.partial(np.clip, a_min=self.low, a_max=self.high)


class LayerNorm(nn.Cell):
    """Layer normalization of rows x ``(B, size)`` (Ba et al., 2016, https://arxiv.org/abs/1607.06450, eq. 4), with a
    learned weight and bias for each number, which start at 1 and 0:

        y = (x - mean(x)) / sqrt(var(x) + 1e-5) * weight + bias

    Mean and variance are computed over the row; the variance is the biased one.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="bias")
        self.mean = ops.ReduceMean(True)
        self.fused: ops.Primitive | None = None

    def construct(self, x):
        if self.fused is not None:
            return self.fused(x, self.weight, self.bias)
        # MindSpore's LayerNorm has no second derivative outside of graphs, so it is not used.
        x = x - self.mean(x, -1)
        return x / ops.Sqrt()(self.mean(x * x, -1) + numpy_layers.EPSILON) * self.weight + self.bias

    def host(self) -> numpy_layers.LayerNorm:
        return numpy_layers.LayerNorm(self.weight.asnumpy(), self.bias.asnumpy())


_MIX = (0x7FEB352D, 0x846CA68B)
"""Factors of the hash (https://github.com/skeeto/hash-prospector)."""
_APART = 0x9E3779B9
"""Distance of the numbers of layers in the random stream, 2^32 divided by the golden ratio."""


class Dropout(nn.Cell):
    """Sets random numbers of x ``(B, F)`` to 0 and divides the others by ``1 - rate`` (Srivastava et al., 2014,
    https://jmlr.org/papers/v15/srivastava14a.html).

    The numbers that decide are a hash of their positions in one stream of 2^32 numbers; ``seed``, int32 (1,), is the
    position of the first one. So the same seed drops the same numbers, in every process and with kernels as without.
    """

    def __init__(self, rate: float, number: int = 0) -> None:
        super().__init__()
        threshold = min(round(rate * 2.0**32), 2**32 - 1)
        self.threshold, self.factor = _int32(threshold), ms.Tensor(np.float32(1.0 / (1.0 - rate)))
        # Unsigned numbers compare as signed ones do after their highest bit is flipped.
        self.flip, self.flipped = _int32(1 << 31), _int32(threshold ^ (1 << 31))
        # The hash alternates between shifts and products.
        self.shifts = tuple((_int32(shift), _int32((1 << (32 - shift)) - 1)) for shift in (16, 15, 16))
        self.factors = tuple(_int32(factor) for factor in _MIX)
        self.start(number)
        self.fused: ops.Primitive | None = None

    def start(self, number: int) -> None:
        """Sets the number of the layer."""
        self.first = _int32(number * _APART)

    def construct(self, x, seed):
        if self.fused is not None:
            return self.fused(x, seed + self.first, self.threshold, self.factor)
        places = ops.Reshape()(ms.Tensor(np.arange(x.shape[0] * x.shape[1], dtype=np.int32)), x.shape)
        bits = self.hashed(places + (seed + self.first))
        kept = ops.BitwiseXor()(bits, self.flip) >= self.flipped
        return x * ops.stop_gradient(ops.Cast()(kept, ms.float32) * self.factor)

    def hashed(self, x):
        """The numbers at the positions x, int32 of any shape."""
        x = self.mixed(x, 0) * self.factors[0]
        x = self.mixed(x, 1) * self.factors[1]
        return self.mixed(x, 2)

    def mixed(self, x, k):
        """x ^ (x >> shift) for shift number k; the sign is a bit like the others."""
        shift, low = self.shifts[k]
        return ops.BitwiseXor()(x, ops.BitwiseAnd()(ops.RightShift()(x, shift), low))


def _int32(bits: int) -> ms.Tensor:
    """The lowest 32 bits of a number."""
    return ms.Tensor(np.uint32(bits & 0xFFFFFFFF).astype(np.int32))


class MLP(Composed):
    """Linear layers with an activation after each and, with `norm` 'layer', a `LayerNorm` before each activation. With
    a dropout rate, a `Dropout` follows each linear layer (Hiraoka et al., 2021, https://arxiv.org/abs/2110.02034,
    section 3); the layers then also take its seed, int32 (1,)."""

    layer_class: Callable[..., nn.Cell] = Linear

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        activation: str,
        gain: float | None,
        rng: np.random.Generator,
        norm: str = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [in_features, *hidden]
        self.out_features = sizes[-1]
        self.layers = nn.CellList([self.layer_class(a, b, gain, rng) for a, b in itertools.pairwise(sizes)])
        self.norms = nn.CellList([LayerNorm(size) for size in hidden] if norm == "layer" else [])
        self.dropouts = nn.CellList([Dropout(dropout, k) for k in range(len(hidden))] if dropout else [])
        self.activation_name = activation
        self.activation = ACTIVATIONS[activation]()
        # The activation can be in the kernel of the layer before it.
        self.fusible = activation in FUSED and (bool(self.norms) or not self.dropouts)
        # Whether the fused form of each layer, or of its normalization, includes the activation.
        self.layers_activate = False

    @classmethod
    def of(
        cls, in_features: int, model: Any, gain: float | None, rng: np.random.Generator, *, acts: bool = False
    ) -> MLP | ResidualMLP:
        """The hidden layers that the section `policy.model` configures, a `ResidualMLP` if ``model.block`` says
        so."""
        if model.get("block", "plain") == "residual":
            return ResidualMLP(in_features, model.hidden, model.activation, gain, rng)
        norm = model.norm
        if norm == "critics":
            norm = "none" if acts else "layer"
        dropout = 0.0 if acts else model.get("dropout", 0.0)
        return cls(in_features, model.hidden, model.activation, gain, rng, norm, dropout)

    def construct(self, x, seed=None):
        for k in range(len(self.layers)):
            x = self.layers[k](x)
            if len(self.dropouts) > 0:
                x = self.dropouts[k](x, seed)
            if len(self.norms) > 0:
                x = self.norms[k](x)
            x = self.activate(x)
        return x

    def activate(self, x):
        """The activation of the result of a layer."""
        return x if self.layers_activate else self.activation(x)

    def into(self, head, x, seed=None):
        """``head(self(x, seed))`` for a `Linear` head and x ``(B, in)``. With this package's kernels, the last ReLU
        layer and the head are one kernel, see `networks.fused.fused_relu_then`."""
        is_one = head.fused_after_relu is not None and self.activation_name == "relu" and len(self.norms) == 0
        if not is_one or len(self.layers) == 0 or len(self.dropouts) > 0:
            return head(self.construct(x, seed))
        for layer in self.layers[:-1]:
            x = layer(x)
        last = self.layers[-1]
        return head.fused_after_relu(x, last.weight, last.bias, head.weight, head.bias)[0]

    def host(self) -> Any:
        return numpy_layers.MLP(host_of(self.layers), self.activation_name, host_of(self.norms))


EXPANSION = 4
"""Units of the layer inside a residual block, relative to the width of the block."""


class ResidualMLP(Composed, compositions.ResidualMLP):
    """Residual blocks after a linear layer, for x ``(B, in)`` (Lee et al., 2024, https://arxiv.org/abs/2410.09754,
    section 4):

        h_0 = W x + b
        h_k = h_{k-1} + W_k' activation(W_k LayerNorm(h_{k-1}) + b_k) + b_k',   k = 1 .. n
        y = LayerNorm(h_n)
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int], activation: str, gain: float | None, rng: np.random.Generator
    ) -> None:
        super().__init__()
        size = self.out_features = hidden[0]
        self.first = Linear(in_features, size, gain, rng)
        # That of each block, and the last one.
        self.norms = nn.CellList([LayerNorm(size) for _ in range(len(hidden) + 1)])
        self.wide = nn.CellList([MLP(size, [EXPANSION * size], activation, gain, rng) for _ in hidden])
        self.narrow = nn.CellList([Linear(EXPANSION * size, size, gain, rng) for _ in hidden])

    def into(self, head, x, seed=None):
        """``head(self(x))``, see `MLP.into`."""
        return head(self.construct(x))
