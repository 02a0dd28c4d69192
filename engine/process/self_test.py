"""Checks of MindSpore on this machine: a compiled gradient, and the floating-point mode."""

import time
import types
from typing import Any

import numpy as np

from minding.engine.errors import SetupError
from minding.engine.process import floats
from minding.engine.process.runtime import device, load, to_device


def self_test() -> dict[str, str]:
    """Imports MindSpore, compares a compiled gradient with one by hand, and checks the floating-point mode. `minding
    doctor` uses it."""
    start = time.perf_counter()
    module = load()
    loaded = time.perf_counter()
    x = to_device(np.array([1.0, 2.0, 3.0], np.float32))
    gradient = module.jit(module.grad(_sum_of_squares))(x).asnumpy()
    if not np.allclose(gradient, [2.0, 4.0, 6.0]):
        raise SetupError(
            f"the gradient of sum(x^2) at [1, 2, 3] is {gradient.tolist()}, expected [2, 4, 6]: reinstall MindSpore"
        )
    done = time.perf_counter()
    return {
        "mindspore": str(module.__version__),
        "device": device(),
        "import": f"{loaded - start:.1f} s",
        "compiled gradient": f"ok in {done - loaded:.1f} s",
        "denormal numbers": _check_denormals(module),
    }


def _check_denormals(module: types.ModuleType) -> str:
    """Raises SetupError if a graph or NumPy keeps denormal numbers, see `floats`."""
    smallest = np.full(8, 6e-45, np.float32)
    graph = module.jit(_scaled)

    @floats.flush_denormals
    def kept() -> list[str]:
        # The first call of a graph runs in other threads than later ones.
        calls = [(f"call {i} of a graph", graph(to_device(smallest)).asnumpy()) for i in range(1, 4)]
        return [name for name, result in (*calls, ("NumPy", _scaled(smallest))) if result.any()]

    if device() == "CPU" and (where := kept()):
        raise SetupError(
            f"denormal numbers are kept in {', '.join(where)}, so a resumed run may differ in its last bits: "
            "use Linux on x86-64 or AArch64"
        )
    return "zero"


def _scaled(x: Any) -> Any:
    return x * np.float32(0.9)


def _sum_of_squares(x: Any) -> Any:
    return (x * x).sum()
