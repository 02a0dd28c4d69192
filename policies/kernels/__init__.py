"""This package's kernels for CPU, compiled when minding is installed; `minding doctor` says whether they were.

Each kernel is a function of a library, which `mindspore.ops.Custom` puts into a graph. If there was no C++ compiler and
so no library, policies compute the same with MindSpore's kernels, only more slowly.
"""

import ctypes
import itertools
import shutil
from collections.abc import Callable
from typing import Any

from minding.engine.errors import SetupError
from minding.engine.process import runtime
from minding.engine.process.signals import tell_senders
from minding.policies.kernels.library import LIBRARY, compiled, function, onednn_has_avx512, use_onednn

_numbers = itertools.count()


def fault() -> tuple[str, str] | None:
    """The reason why the library cannot be used, and a remedy; None if it can be used. Tries to load the library."""
    compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    again = "install minding again, with `pip install -v`"
    if compiled():
        try:
            function("use_threads")
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
    """
    if not compiled():
        return
    function("use_threads")(threads)
    library = ctypes.CDLL(str(LIBRARY))
    if hasattr(library, "note_sender"):
        tell_senders(library.note_sender, library.sent_by_interrupt)
    use_onednn(onednn_has_avx512())


def usable() -> bool:
    """Whether graphs of this process can use the kernels."""
    return runtime.device() == "CPU" and compiled()


def kernel(
    name: str,
    shape: Callable[..., Any],
    outputs: int | Callable[..., Any] = 1,
    gradient: Callable[..., Any] | None = None,
) -> Any:
    """A primitive that runs the library's function `name`."""
    # MindSpore would report a missing function only when a graph runs.
    function(name)
    # Imported here, because `compiled` and `fault` must not load MindSpore.
    from minding.engine.process.runtime import ops

    dtype = outputs
    if isinstance(outputs, int):
        count = outputs
        dtype = lambda first, *others: first if count == 1 else (first,) * count  # noqa: E731
    primitive = ops.Custom(f"{LIBRARY}:{name}", shape, dtype, "aot", gradient)
    # MindSpore takes primitives with equal names and attributes for one, and may ask either for the shape of both.
    primitive.add_prim_attr("number", next(_numbers))
    return primitive
