"""The library of this package's kernels, called without a graph. MindSpore is not imported."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minding.engine.errors import SetupError
from minding.engine.types import Array

LIBRARY = Path(__file__).with_name("_kernels.so")
_AVX512 = 0x20
"""Bit of `dnnl_cpu_isa_t` that is set with AVX-512, but not with AVX2."""


@functools.cache
def compiled() -> bool:
    """Whether the installation built the library."""
    return LIBRARY.is_file()


@functools.cache
def function(name: str) -> Any:
    """A function of the library, which is the one that graphs of this process use.

    Raises:
      SetupError: the library was compiled from other sources.
    """
    try:
        return getattr(ctypes.CDLL(str(LIBRARY)), name)
    except AttributeError:
        raise SetupError(
            f"compiled from other sources ({LIBRARY} has no function {name}): install minding again"
        ) from None


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


class Call:
    """A kernel with fixed shapes of its inputs and its output.

    Args:
      name: name of the function.
      inputs: shapes and dtypes of the inputs.
      output: shape of the output, which is float32.
    """

    def __init__(self, name: str, inputs: Sequence[tuple[tuple[int, ...], str]], output: tuple[int, ...]) -> None:
        described = [*inputs, (output, "float32")]
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

    def __call__(self, *arrays: Array) -> None:
        """Runs the kernel on C-contiguous inputs and an output of the described shapes and dtypes."""
        for k, array in enumerate(arrays):
            self._data[k] = array.ctypes.data
        self._function(len(arrays), self._data, *self._rest, None, None)
