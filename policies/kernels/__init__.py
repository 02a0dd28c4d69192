"""Our own kernels for CPU, compiled when minding is installed; `minding doctor` says whether they were.

Each is a function of the library that `mindspore.ops.Custom` puts into a graph. Without them, for lack of a C++
compiler, policies compute the same with MindSpore's kernels, only more slowly.
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
"""Bit of `dnnl_cpu_isa_t` that AVX-512 adds to AVX2."""
_LIBRARY = Path(__file__).with_name("_kernels.so")


@functools.cache
def compiled() -> bool:
    """Whether the installation built the library."""
    return _LIBRARY.is_file()


def fault() -> tuple[str, str] | None:
    """Why the library cannot be used, and what to do; None if it can. It tries to load the library."""
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
    """Settles for the whole process how large products are computed; results do not depend on `threads`. From then on
    SIGTERMs that MindSpore sends for a SIGINT are known as that, unless the library is older.

    On processors with AVX-512 oneDNN computes them, which MindSpore brings, unless ``ONEDNN_MAX_CPU_ISA`` keeps it
    from using that. Call it once MindSpore is prepared.

    Args:
      threads: among how many threads kernels divide large work, the calling one included; from 1 to 256, other
        numbers count as the nearest of these.

    Raises:
      SetupError: the library was compiled from other sources.
    """
    if not compiled():
        return
    _function("use_threads")(threads)
    library = ctypes.CDLL(str(_LIBRARY))
    if hasattr(library, "note_sender"):
        tell_senders(library.note_sender, library.sent_by_interrupt)
    use_onednn(_onednn_has_avx512())


def use_onednn(on: bool) -> bool:
    """Whether oneDNN computes large products from now on; returns whether it does."""
    path = _onednn()
    return bool(_function("use_onednn")(str(path).encode() if on and path is not None else None))


@functools.cache
def _function(name: str) -> Any:
    """A function of the library; in a process it is the library that graphs use."""
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
    # Asking settles it: what the environment says later is ignored.
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
      shape: (shapes of the inputs...) -> shape of the output, or a tuple of them.
      dtype: (dtypes of the inputs...) -> dtype of the output, or a tuple of them.
      gradient: (inputs..., output, gradient of the output) -> gradients of the inputs.

    Raises:
      SetupError: the library was compiled from other sources.
    """
    # MindSpore would say only when a graph runs that there is no such function.
    _function(name)
    # Imported here: to ask whether there are kernels must not load MindSpore.
    from minding.engine.process.runtime import ops

    return ops.Custom(f"{_LIBRARY}:{name}", shape, dtype, "aot", gradient)
