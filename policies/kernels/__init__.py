"""Our own kernels for CPU, compiled when minding is installed; `minding doctor` says whether they were.

Each is a function of the library that `mindspore.ops.Custom` puts into a graph. Without them, for lack of a C++
compiler, policies compute the same with MindSpore's kernels, only more slowly.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minding.engine.process import runtime

_LIBRARY = Path(__file__).with_name(f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}")


@functools.cache
def compiled() -> bool:
    """Whether the installation built the library."""
    return _LIBRARY.is_file()


def fault() -> tuple[str, str] | None:
    """Why the library cannot be used, and what to do; None if it can. It tries to load the library."""
    others = sorted(path.name for path in _LIBRARY.parent.glob("_kernels*.so") if path != _LIBRARY)
    compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    again = "install minding again, with `pip install -v`"
    if compiled():
        try:
            ctypes.CDLL(str(_LIBRARY))
        except OSError as error:
            return f"cannot be loaded ({error})", again
        return None
    if others:
        return f"compiled for another Python ({others[0]}), not for this one ({_LIBRARY.name})", again
    if compiler is None:
        return "not compiled: there is no C++ compiler", f"install g++, then {again}"
    return f"not compiled, although there is {compiler} now", f"{again}, which shows what the compiler says"


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
    """
    # Imported here: to ask whether there are kernels must not load MindSpore.
    from minding.engine.process.runtime import ops

    return ops.Custom(f"{_LIBRARY}:{name}", shape, dtype, "aot", gradient)
