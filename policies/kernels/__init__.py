"""This package's kernels for CPU, compiled when minding is installed; `minding doctor` says whether they were.

Each kernel is a function of a library, which `mindspore.ops.Custom` puts into a graph. If there was no C++ compiler and
so no library, policies compute the same with MindSpore's kernels, only more slowly.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minding.engine.errors import SetupError
from minding.engine.process import runtime
from minding.engine.process.signals import tell_senders

_AVX512 = 0x20
"""Bit of `dnnl_cpu_isa_t` that is set with AVX-512, but not with AVX2."""
_LIBRARY = Path(__file__).with_name("_kernels.so")


@functools.cache
def compiled() -> bool:
    """Whether the installation built the library."""
    return _LIBRARY.is_file()


def fault() -> tuple[str, str] | None:
    """The reason why the library cannot be used, and a remedy; None if it can be used. Tries to load the library."""
    compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    again = "install minding again, with `pip install -v`"
    if compiled():
        try:
            _function("use_threads")
        except OSError as error:
            return f"cannot be loaded ({error})", again
        except SetupError as error:
            return str(error), again
        return None
    if compiler is None:
        return "not compiled: there is no C++ compiler", f"install g++, then {again}"
    return f"not compiled, although there is {compiler} now", f"{again}, which shows what the compiler says"


def prepare(threads: int) -> None:
    """Sets for the whole process how large products are computed; results do not depend on `threads`. From then on, a
    SIGTERM that MindSpore sends for a SIGINT is recognized as such, unless the library is older than this feature.

    On processors with AVX-512, MindSpore's oneDNN computes large products, unless ``ONEDNN_MAX_CPU_ISA`` forbids
    AVX-512. Call this after MindSpore is prepared.

    Args:
      threads: number of threads among which kernels divide large work, including the calling thread; clipped to
        [1, 256].

    Raises:
      SetupError: if the library was compiled from other sources.
    """
    if not compiled():
        return
    _function("use_threads")(threads)
    library = ctypes.CDLL(str(_LIBRARY))
    if hasattr(library, "note_sender"):
        tell_senders(library.note_sender, library.sent_by_interrupt)
    use_onednn(_onednn_has_avx512())


def use_onednn(on: bool) -> bool:
    """Turns on or off that oneDNN computes large products; returns whether it does from now on."""
    path = _onednn()
    return bool(_function("use_onednn")(str(path).encode() if on and path is not None else None))


@functools.cache
def _function(name: str) -> Any:
    """A function of the library, which is the one that graphs of this process use."""
    try:
        return getattr(ctypes.CDLL(str(_LIBRARY)), name)
    except AttributeError:
        raise SetupError(
            f"compiled from other sources ({_LIBRARY} has no function {name}): install minding again"
        ) from None


@functools.cache
def _onednn() -> Path | None:
    """The oneDNN library of MindSpore's wheel, which MindSpore has loaded."""
    package = importlib.util.find_spec("mindspore")
    found = Path(package.origin).parent / "lib" / "libdnnl.so.3" if package and package.origin else None
    return found if found is not None and found.is_file() else None


def _onednn_has_avx512() -> bool:
    path = _onednn()
    # This query fixes the answer for the process: oneDNN ignores later changes of the environment variable.
    return path is not None and bool(ctypes.CDLL(str(path)).dnnl_get_effective_cpu_isa() & _AVX512)


def usable() -> bool:
    """Whether graphs of this process can use the kernels."""
    return runtime.device() == "CPU" and compiled()


def kernel(
    name: str,
    shape: Callable[..., Any],
    dtype: Callable[..., Any],
    gradient: Callable[..., Any] | None = None,
) -> Any:
    """A primitive that runs the library's function `name`.

    Args:
      name: name of the function.
      shape: function (shapes of the inputs...) -> shape of the output, or a tuple of shapes.
      dtype: function (dtypes of the inputs...) -> dtype of the output, or a tuple of dtypes.
      gradient: function (inputs..., output, gradient of the output) -> gradients of the inputs; None: no gradient.

    Raises:
      SetupError: if the library was compiled from other sources.
    """
    # MindSpore would report a missing function only when a graph runs.
    _function(name)
    # Imported here, because `compiled` and `fault` must not load MindSpore.
    from minding.engine.process.runtime import ops

    return ops.Custom(f"{_LIBRARY}:{name}", shape, dtype, "aot", gradient)
