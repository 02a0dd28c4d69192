"""Compiles a policy's root cell together with the tables it learns from."""

from __future__ import annotations

import warnings

import numpy as np

from minding.engine.buffers import DeviceTables
from minding.engine.process import runtime
from minding.engine.process.runtime import RecompileWarning, ms, nn
from minding.engine.types import Array


class _Bound(nn.Cell):
    # Parameters keep the names they have under the root.
    def __init__(self, root: nn.Cell, tables: DeviceTables) -> None:
        super().__init__(auto_prefix=False)
        self.root = root
        self.tables = ms.ParameterTuple(tables.parameters)

    @ms.jit
    def construct(self, *inputs):
        return self.root(inputs, self.tables)


class Update:
    """All gradient steps of an iteration in one compiled call.

    The tables are parameters of the compiled graph, so it is compiled for one buffer; another buffer causes a
    recompilation, which is reported.

    Args:
      root: ``construct(inputs, tables)`` takes a tuple of Tensors and the tables, and returns one Tensor.
      name: used in messages.
    """

    def __init__(self, root: nn.Cell, name: str) -> None:
        self._root = root
        self._name = name
        self._tables: DeviceTables | None = None
        self._compiled: runtime.Compiled | None = None

    @property
    def signatures(self) -> int:
        """Number of distinct input signatures compiled for the current tables."""
        return 0 if self._compiled is None else self._compiled.signatures

    def __call__(self, tables: DeviceTables, *inputs: Array) -> Array:
        """Runs the update on NumPy inputs; returns the result as an array."""
        if self._compiled is None or tables is not self._tables:
            if self._compiled is not None:
                warnings.warn(
                    f"{self._name} learns from another buffer than before and is recompiled; use one buffer",
                    RecompileWarning,
                    stacklevel=4,
                )
            self._tables = tables
            self._compiled = runtime.Compiled(_Bound(self._root, tables), self._name)
        # `tolist()` is four times as fast as `asnumpy()` on a fresh tensor.
        return np.array(self._compiled(*[runtime.to_device(x) for x in inputs]).tolist(), np.float32)
