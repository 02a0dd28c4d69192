"""Processes that minding starts: spawned, lean, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import multiprocessing
import os
import queue
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import Any

from minding.engine.process.signals import SIGNALS, leave_to_parent

SPAWN = multiprocessing.get_context("spawn")
"""A fork after any operator of MindSpore can hang."""
_STARTING = threading.Lock()
"""The main script and the environment variables belong to all threads."""
_PR_SET_PDEATHSIG = 1
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Workers act with NumPy, whose products round differently with several threads."""
_SAFE_PATH = {"PYTHONSAFEPATH": "minding"}
"""Keeps the current folder off the path of a process that starts with ``-c``; Python 3.10 does not know it."""


class WorkerProcess(SpawnProcess):
    """A process that the kernel kills when this one ends, for whatever reason, even if the process is stopped."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling calls the function first, before the process imports the code that it will run.
        return _end_with, (os.getpid(),), self.__dict__

    def launch(self) -> None:
        """Starts the process, lean (see `lean_start`)."""
        with lean_start():
            _starter().call(self.start)


class _Starter:
    """A thread that starts all processes, and lives as long as this process. The kernel ends a process with the thread
    that started it. The thread is a daemon, because Python joins all others before it runs the functions that are
    registered for the exit."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="process-starter").start()

    def call(self, start: Callable[[], None]) -> None:
        """Calls `start` in the thread, and raises its error in the caller."""
        done: Future[None] = Future()
        self._calls.put((start, done))
        done.result()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while True:
            start, done = self._calls.get()
            try:
                done.set_result(start())
            except BaseException as error:
                done.set_exception(error)
            # Only its owner refers to the started object.
            del start, done


@functools.cache
def _starter() -> _Starter:
    return _Starter()


def _end_with(parent: int) -> WorkerProcess:
    """In a spawned process: makes it end with its parent; returns the object that takes its description."""
    end_with_parent(parent)
    for name, value in _SAFE_PATH.items():
        # Programs that an environment starts may need their own folders.
        if os.environ.get(name) == value:
            del os.environ[name]
    return WorkerProcess.__new__(WorkerProcess)


def end_with_parent(parent: int) -> None:
    """Lets the kernel kill this process (SIGKILL) when the thread that started it ends; on Linux."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def lean_start() -> Iterator[None]:
    """While a process is spawned: hides the main script and the current folder, gives NumPy one thread, and holds
    signals back.

    Spawn would run the user's script again in the child, with all of its imports, MindSpore among them. Definitions in
    the script still reach the child, because cloudpickle sends the code of `__main__` by value. The child also holds
    back SIGINT and SIGTERM, until it calls `become_worker`.
    """
    with _STARTING:
        yield from _lean_start()


def _lean_start() -> Iterator[None]:
    script = sys.modules["__main__"]
    wanted = {"OMP_NUM_THREADS": "1", **_SAFE_PATH}
    changed = {**{name: value for name, value in wanted.items() if name not in os.environ}, **_ONE_THREAD}
    before = {name: os.environ[name] for name in changed if name in os.environ}
    os.environ.update(changed)
    # The start of the resource tracker would unblock signals again.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        for name in changed:
            del os.environ[name]
        os.environ.update(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def stop_at_exit(owner: object, stop: Callable[..., None], *args: Any) -> Finalize[None]:
    """Calls ``stop(*args)`` once: when `owner` is garbage, when the interpreter ends, or when the result is called. At
    exit, multiprocessing waits for all children without a limit, and `weakref.finalize` may run later than that."""
    return Finalize(owner, stop, args, exitpriority=1)


def become_worker() -> None:
    """To be called first in a spawned process: it leaves signals to the parent, and ends when the parent ends."""
    # Both signals may reach the whole process group; only the parent decides about them.
    for number in SIGNALS:
        signal.signal(number, leave_to_parent)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    # Even if the process hangs in user code.
    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
