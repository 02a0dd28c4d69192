"""The library of this package's kernels, called without a graph. MindSpore is not imported."""

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.errors import SetupError
from minding.engine.types import Array

LIBRARY = Path(__file__).with_name("_kernels.so")
_ARGUMENTS: dict[str, list[Any]] = {
    "layers": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
}
_AVX512 = 0x20
"""Bit of `dnnl_cpu_isa_t` that is set with AVX-512, but not with AVX2."""


@functools.cache
def compiled() -> bool:
    """Whether the installation built the library."""
    return LIBRARY.is_file()


@functools.cache
def function(name: str) -> Any:
    """A function of the library, which is the one that graphs of this process use."""
    try:
        found = getattr(ctypes.CDLL(str(LIBRARY)), name)
    except AttributeError:
        raise SetupError(
            f"compiled from other sources ({LIBRARY} has no function {name}): install minding again"
        ) from None
    found.argtypes = _ARGUMENTS.get(name)
    return found


@functools.cache
def onednn() -> Path | None:
    """The oneDNN library of MindSpore's wheel."""
    package = importlib.util.find_spec("mindspore")
    found = Path(package.origin).parent / "lib" / "libdnnl.so.3" if package and package.origin else None
    return found if found is not None and found.is_file() else None


def onednn_has_avx512() -> bool:
    """Whether oneDNN may use AVX-512 in this process. The first answer holds for the process: oneDNN ignores later
    changes of the environment variable."""
    path = onednn()
    return path is not None and bool(ctypes.CDLL(str(path)).dnnl_get_effective_cpu_isa() & _AVX512)


def use_onednn(on: bool) -> bool:
    """Turns on or off that oneDNN computes large products; returns whether it does from now on."""
    path = onednn()
    return bool(function("use_onednn")(str(path).encode() if on and path is not None else None))


@functools.cache
def choose_onednn() -> None:
    """Lets oneDNN compute large products where it uses AVX-512; once per process, so that all its kernels round alike
    and as they do in the other processes of a run."""
    use_onednn(onednn_has_avx512())


ACTIVATIONS = ("none", "relu", "tanh")
"""Activations that the kernels of layers include."""
_LARGE, _NARROW = 1 << 20, 64
"""Multiplications and sides from which oneDNN may compute a product, see `products.cpp`."""


class _Layer(ctypes.Structure):
    _fields_ = [
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("activation", ctypes.c_int64),
    ]


_Memory = ctypes.c_char * 0


def _address(x: Array) -> Any:
    """The address of a C-contiguous array, as an argument of a function; `x.ctypes` takes several times as long."""
    return _Memory.from_buffer(x) if x.flags.writeable else x.ctypes.data  # type: ignore[arg-type]


class Layers:
    """Linear layers, each with an activation, in one call.

    Args:
      layers: weight ``(out, in)``, bias ``(out,)`` and activation, one of `ACTIVATIONS`, of each layer. The arrays must
        be C-contiguous float32; changes to them count.
    """

    def __init__(self, layers: Sequence[tuple[Array, Array, str]]) -> None:
        self._arrays = [(weight, bias) for weight, bias, _ in layers]
        self._layers = (_Layer * len(layers))(
            *[
                _Layer(w.ctypes.data, b.ctypes.data, w.shape[1], w.shape[0], ACTIVATIONS.index(activation))
                for w, b, activation in layers
            ]
        )
        wide = [weight.size for weight, _ in self._arrays if min(weight.shape) >= _NARROW]
        self._rows_of_onednn = max(_NARROW, _LARGE // max(wide)) if wide else np.inf
        self._inputs, self._outputs = layers[0][0].shape[1], len(layers[-1][0])
        self._function = function("layers")

    def __call__(self, x: Array) -> Array:
        """The result ``(..., out)`` of the last layer for x ``(..., in)``."""
        shape = x.shape[:-1]
        x = np.ascontiguousarray(x.reshape(-1, self._inputs), np.float32)
        return self.at(_address(x), len(x)).reshape(*shape, self._outputs)

    def at(self, address: Any, batch: int) -> Array:
        """The result ``(B, out)`` for C-contiguous float32 ``(B, in)`` at this address."""
        if batch >= self._rows_of_onednn:
            choose_onednn()
        y = np.empty((batch, self._outputs), np.float32)
        self._function(self._layers, len(self._layers), batch, address, _address(y))
        return y


class Call:
    """A kernel with fixed shapes of its inputs and its output.

    Args:
      output: shape of the output, which is float32, or the array that is always written.

    All arrays are C-contiguous.
    """

    def __init__(
        self, name: str, inputs: Sequence[tuple[tuple[int, ...], str] | Array], output: tuple[int, ...] | Array
    ) -> None:
        self._given = [*inputs, output if isinstance(output, np.ndarray) else (output, "float32")]
        described = [(x.shape, x.dtype.name) if isinstance(x, np.ndarray) else x for x in self._given]
        count = len(described)
        self._function = function(name)
        self._sizes = [(ctypes.c_int64 * max(1, len(shape)))(*shape) for shape, _ in described]
        pointer = ctypes.POINTER(ctypes.c_int64)
        self._data = (ctypes.c_void_p * count)()
        self._rest = (
            (ctypes.c_int * count)(*[len(shape) for shape, _ in described]),
            (pointer * count)(*[ctypes.cast(sizes, pointer) for sizes in self._sizes]),
            (ctypes.c_char_p * count)(*[dtype.encode() for _, dtype in described]),
        )
        self._open = []
        for k, given in enumerate(self._given):
            if isinstance(given, np.ndarray):
                self._data[k] = given.ctypes.data
            else:
                self._open.append(k)

    def __call__(self, *arrays: Array) -> None:
        """Runs the kernel on the arrays that are not always the same, of the described shapes and dtypes."""
        for k, array in zip(self._open, arrays):
            self._data[k] = array.ctypes.data
        self._function(len(self._data), self._data, *self._rest, None, None)
