"""The floating-point mode of policies: denormal numbers count as zero, both as operands and as results.

Numbers below 1.2e-38 in magnitude carry no information for learning, and on x86 they are many times slower than
others. More importantly, the mode belongs to a thread, and MindSpore sets it in its own threads only: a graph that runs
in the calling thread would use the mode of that thread. Whether a moment of Adam that decays below 1e-38 is kept or
dropped would then depend on the thread of a call, and a resumed run would differ from an uninterrupted one.

Therefore the calling thread has the mode while a policy computes in it, and gets its own mode back afterwards. User
code, NaN, infinity and rounding are not affected.
"""

import ctypes
import functools
import platform
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


class _X86Environment(ctypes.Structure):
    """`fenv_t` of Linux on x86-64; `control` is the register MXCSR."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("control", ctypes.c_uint32))


class _ArmEnvironment(ctypes.Structure):
    """`fenv_t` of Linux on AArch64; `control` is the register FPCR."""

    _fields_ = (("control", ctypes.c_uint32), ("status", ctypes.c_uint32))


_ENVIRONMENTS: dict[str, tuple[type[ctypes.Structure], int]] = {
    # Flush to zero and denormals are zero.
    "x86_64": (_X86Environment, 0x8000 | 0x0040),
    # The bit FZ does both.
    "aarch64": (_ArmEnvironment, 1 << 24),
}


def flush_denormals(function: Callable[P, R]) -> Callable[P, R]:
    """Runs `function` with denormals as zero in the calling thread, and restores the mode of that thread afterwards. On
    systems other than Linux on x86-64 and AArch64 the function is returned unchanged, see `supported`."""
    if not supported():
        return function
    get, put, new, flush = _control()

    @functools.wraps(function)
    def flushed(*args: P.args, **kwargs: P.kwargs) -> R:
        # C code would take a few nanoseconds; three calls through ctypes take about a microsecond.
        environment = new()
        reference = ctypes.byref(environment)
        get(reference)
        before = environment.control
        if before & flush == flush:
            return function(*args, **kwargs)
        environment.control = before | flush
        put(reference)
        try:
            return function(*args, **kwargs)
        finally:
            environment.control = before
            put(reference)

    return flushed


def supported() -> bool:
    """Whether the mode can be set on this system."""
    return sys.platform == "linux" and platform.machine() in _ENVIRONMENTS


@functools.cache
def _control() -> tuple[Any, Any, type[Any], int]:
    """`fegetenv` and `fesetenv` of the C library, the structure they take, and the bits to set."""
    for kind in (np.half, np.single, np.double, np.longdouble):
        # NumPy computes the smallest denormal on first use, and caches it.
        np.finfo(kind)
    # The process itself has the functions: the interpreter is linked against the math library.
    library = ctypes.PyDLL(None)
    return library.fegetenv, library.fesetenv, *_ENVIRONMENTS[platform.machine()]
