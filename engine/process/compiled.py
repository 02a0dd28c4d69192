"""Compiled cells: run without look-ups, guarded against recompilation, and freed when their owner is gone."""

from __future__ import annotations

import gc
import importlib
import time
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from minding.engine.process import floats
from minding.engine.process.runtime import is_loaded, load, run_small_graph


class RecompileWarning(UserWarning):
    """A compiled function is recompiled because the shapes or dtypes of its inputs changed."""


class Compiled:
    """A compiled cell with a guard against recompilation. It computes in the mode of `floats.flush_denormals`.

    The first `expected` input signatures for each number of inputs compile silently; each further one causes a
    RecompileWarning. NumPy arrays and Python numbers would become constants of the graph, so they are refused.

    Args:
      cell: an `nn.Cell` whose `construct` is decorated with `ms.jit`.
      name: name of the cell in messages.
      expected: number of distinct input signatures, for each number of inputs, that are part of normal work.
    """

    def __init__(self, cell: Any, name: str, expected: int = 1) -> None:
        self._cell = cell
        self._name = name
        self._expected = expected
        self._tensor = load().Tensor
        self._graphs: dict[tuple[Any, ...], Callable[[tuple[Any, ...]], Any] | None] = {}
        self._last: tuple[Any, ...] | None = None

    @property
    def signatures(self) -> int:
        """Number of distinct input signatures compiled so far."""
        return len(self._graphs)

    @floats.flush_denormals
    def __call__(self, *inputs: Any) -> Any:
        signature = tuple([self._describe(position, x) for position, x in enumerate(inputs)])
        if signature != self._last:
            self._note(signature)
        graph = self._graphs[signature]
        if graph is not None:
            return graph(inputs)
        _free_unused()
        output = self._cell(*inputs)
        phase, self._graphs[signature] = _graph_of(self._cell, inputs)
        _owned.add(phase)
        weakref.finalize(self, _give_up, phase).atexit = False
        return output

    def _describe(self, position: int, x: Any) -> tuple[Any, ...]:
        if not isinstance(x, self._tensor):
            raise TypeError(
                f"compiled function {self._name!r}, input {position}: expected a Tensor, got {type(x).__name__}, which "
                "would be compiled in as a constant; pass it through minding.engine.process.runtime.to_device"
            )
        return x.shape, x.dtype

    def _note(self, signature: tuple[Any, ...]) -> None:
        if signature not in self._graphs:
            self._graphs[signature] = None
            if sum(len(seen) == len(signature) for seen in self._graphs) > self._expected:
                warnings.warn(
                    f"compiled function {self._name!r} is recompiled (time {len(self._graphs)}): inputs were "
                    f"{self._last}, now {signature}; keep batch sizes constant",
                    RecompileWarning,
                    stacklevel=3,
                )
        self._last = signature


def _graph_of(cell: Any, inputs: tuple[Any, ...]) -> tuple[str, Callable[[tuple[Any, ...]], Any]]:
    """Name of the graph to which `cell` was compiled for inputs of these signatures, and a function that runs it.

    Every call of the cell would look up the graph again, which takes a sixth of the time of a DQN update.
    """
    executor = _graph_api()._JitExecutor(type(cell).construct.__wrapped__, time.time_ns(), None, cell)
    phase = executor.compile("construct", *inputs)
    run = executor._graph_executor
    return phase, lambda inputs: run(inputs, phase)


_owned: set[str] = set()
"""Names of compiled graphs whose owner exists, or is garbage that was not collected yet."""
_unused: list[str] = []
"""Names of compiled graphs whose owner was deleted."""


def _give_up(phase: str) -> None:
    _owned.discard(phase)
    _unused.append(phase)


def release() -> None:
    """Frees the graphs that can no longer be called, with the parameters, buffers and kernels that they hold.

    MindSpore keeps the graph of a function under `jit` until the process ends, and with it the replay buffer that the
    graph uses. Code that no longer needs a policy deletes it and calls this function; the next compilation does the
    same. A graph is not freed as soon as its owner is deleted, because that may happen during a compilation or in
    another thread.
    """
    if not is_loaded() or not _free_unused():
        return
    # MindSpore keeps the objects of the last compilation: let that be a throwaway graph.
    api = _graph_api()
    earlier = set(api.ms_compile_cache)
    api.JitExecutor_.get_instance().set_weights_values({})
    api._pynative_executor.clear_res()
    run_small_graph(load())
    _unused.extend(api.ms_compile_cache - earlier)
    _free_unused()
    gc.collect()


def _free_unused() -> int:
    """Frees graphs without an owner; returns how many."""
    if not _owned and not _unused:
        # The first graph of a process need not wait: a collection takes a sixth of a second with MindSpore loaded.
        return 0
    gc.collect()
    api, count = _graph_api(), len(_unused)
    for _ in range(count):
        phase = _unused.pop()
        api.ms_compile_cache.discard(phase)
        api.JitExecutor_.get_instance().del_net_res(None, {phase})
    return count


def _graph_api() -> types.ModuleType:
    return importlib.import_module("mindspore.graph.api")
