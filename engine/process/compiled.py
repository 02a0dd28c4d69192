"""Compiled cells: run without look-ups, guarded against recompilation, and freed when their owner is gone."""

import atexit
import functools
import gc
import importlib
import inspect
import os
import re
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minding.engine.error_origin import is_of_libraries
from minding.engine.errors import CodeError, MindingError
from minding.engine.process import floats
from minding.engine.process.runtime import is_loaded, load, run_small_graph, take_turn

_FRAME = re.compile(r"^# \d+ In file (.+?):(\d+)", re.MULTILINE)
"""A frame in MindSpore's account of a compilation that failed."""
_MOST_READ = 1 << 16
_one_thread = threading.RLock()
"""MindSpore fails when it runs or compiles graphs in two threads at the same time."""
_GLANCE = 0.02  # s
_LONGEST_END = 60.0
"""Seconds for which the end of the process waits for another thread, which may be compiling."""
_NO_MEMORY = re.compile(r"Memory isn't enough.*alloc size: (\d+)B")


_closing: list[Callable[[], object]] = []


def before_end(close: Callable[[], object]) -> None:
    """Calls `close` once at the end of the process, when no other thread computes, and before MindSpore ends: what a
    graph holds has to go first, or MindSpore aborts after graphs of several threads."""
    _closing.append(close)


@functools.cache
def _end_alone() -> None:
    """At the end of the process stops its daemon threads before their next graph: MindSpore would abort."""
    atexit.register(_end)


def _end() -> None:
    _stop_others()
    for close in _closing:
        close()


def _stop_others() -> None:
    deadline = time.monotonic() + _LONGEST_END
    # For good: a graph that runs is waited for, and the next one waits.
    if _one_thread.acquire(timeout=_LONGEST_END):
        while not take_turn() and not _others_wait() and time.monotonic() < deadline:
            time.sleep(_GLANCE)


def _others_wait() -> bool:
    """Whether another thread waits for this one in a call of a graph."""
    own = threading.get_ident()
    return any(frame.f_code.co_filename == __file__ for k, frame in sys._current_frames().items() if k != own)


class RecompileWarning(UserWarning):
    """A compiled function is recompiled because the shapes or dtypes of its inputs changed."""


class Compiled:
    """A compiled cell with a guard against recompilation. It computes in the mode of `floats.flush_denormals`.

    The first `expected` input signatures for each number of inputs compile silently; each further one causes a
    RecompileWarning. NumPy arrays and Python numbers would become constants of the graph, so they are refused.
    """

    def __init__(self, cell: Any, name: str, expected: int = 1) -> None:
        self._cell = cell
        self._name = name
        self._expected = expected
        self._tensor = load().Tensor
        # Called before MindSpore's own functions, because MindSpore has been loaded.
        _end_alone()
        self._graphs: dict[tuple[Any, ...], Callable[[tuple[Any, ...]], Any] | None] = {}
        self._last: tuple[Any, ...] | None = None

    @property
    def signatures(self) -> int:
        """Number of distinct input signatures compiled so far."""
        return len(self._graphs)

    @floats.flush_denormals
    def __call__(self, *inputs: Any) -> Any:
        signature = tuple([self._describe(position, x) for position, x in enumerate(inputs)])
        try:
            with _one_thread:
                if signature != self._last:
                    self._note(signature)
                graph = self._graphs[signature]
                return self._first(inputs, signature) if graph is None else graph(inputs)
        except RuntimeError as error:
            lacking = _NO_MEMORY.search(str(error))
            if lacking is None:
                raise
            raise MemoryError(f"MindSpore cannot allocate {int(lacking[1]):,} bytes") from error

    @floats.flush_denormals
    def compile(self, *inputs: Any) -> None:
        """Compiles the cell for inputs of these signatures, unless it is, without computing anything."""
        signature = tuple([self._describe(position, x) for position, x in enumerate(inputs)])
        with _one_thread:
            if signature not in self._graphs:
                self._note(signature)
                _free_unused()
                self._keep(inputs, signature)

    def _first(self, inputs: tuple[Any, ...], signature: tuple[Any, ...]) -> Any:
        """Compiles the cell for inputs of a signature, and calls it."""
        _free_unused()
        begun = time.time()
        try:
            output = self._cell(*inputs)
        except (MindingError, MemoryError):
            raise
        except Exception as error:
            named = None if _NO_MEMORY.search(str(error)) else _in_user_code(self._cell, error, begun)
            if named is None:
                raise
            raise named from error
        self._keep(inputs, signature)
        return output

    def _keep(self, inputs: tuple[Any, ...], signature: tuple[Any, ...]) -> None:
        """Keeps the graph for inputs of a signature, which is compiled if it is new."""
        phase, self._graphs[signature] = _graph_of(self._cell, inputs)
        _owned.add(phase)
        weakref.finalize(self, _give_up, phase).atexit = False

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


def _in_user_code(cell: Any, error: Exception, begun: float) -> CodeError | None:
    """The error of a compilation in one line, with its place in the user's code; None if no such code was
    compiled."""
    text = str(error).strip()
    classes = dict.fromkeys(type(each) for _, each in cell.cells_and_names())
    users = [kind for kind in classes if kind.__module__.partition(".")[0] not in ("minding", "mindspore")]
    frames = _FRAME.findall(text) or _FRAME.findall(_dump(begun))
    places = [f"{file}:{line}" for file, line in frames if not is_of_libraries(file)]
    if not users and not places:
        return None
    who = f"{users[0].__module__}:{users[0].__qualname__}" if users else "your code"
    first = text.partition("\n")[0][:500].rstrip(".")
    fault = f"{who} does not compile: {type(error).__name__}: {first}"
    if places:
        return CodeError(f"{fault} ({places[-1]})")
    try:
        where = f" ({inspect.getsourcefile(users[0])}:{inspect.getsourcelines(users[0])[1]})"
    except (OSError, TypeError):  # Classes of an interactive session have no file.
        where = ""
    return CodeError(
        f"{fault}{where}: compiled code may use MindSpore's operators, but no NumPy, no exceptions, and no Python code "
        "that depends on values of tensors"
    )


def _dump(begun: float) -> str:
    """The head of MindSpore's account of a compilation that failed since `begun`, as far as it wrote one."""
    for file in Path(os.environ.get("MS_OM_PATH", ".")).glob("rank_*/om/analyze_fail.ir"):
        try:
            if file.stat().st_mtime >= begun - 1:
                with open(file, encoding="utf-8", errors="replace") as dump:
                    return dump.read(_MOST_READ)
        except OSError:
            continue
    return ""


def _graph_of(cell: Any, inputs: tuple[Any, ...]) -> tuple[str, Callable[[tuple[Any, ...]], Any]]:
    """Name of the graph to which `cell` was compiled for inputs of these signatures, and a function that runs it. Every
    call of the cell would look up the graph again, which takes a sixth of the time of a DQN update."""
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
    with _one_thread:
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
