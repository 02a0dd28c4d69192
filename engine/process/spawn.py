"""Processes that minding starts: spawned, lean, and never left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from typing import Any

from minding.engine.process.signals import SIGNALS

SPAWN = multiprocessing.get_context("spawn")
"""A fork after any operator of MindSpore can hang."""
_STARTING = threading.Lock()
"""The main script and the environment variables belong to all threads."""
_THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def lean_start() -> Iterator[None]:
    """While a process is spawned: hides the main script, gives NumPy one thread, and holds signals back.

    Spawn would run the user's script again in the child, with all of its imports, MindSpore among them. What is
    defined in the script still arrives, because cloudpickle sends the code of `__main__` by value. The child holds
    SIGINT and SIGTERM back, too, until it calls `become_worker`.
    """
    with _STARTING:
        yield from _lean_start()


def _lean_start() -> Iterator[None]:
    # Its start would let signals through again.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    script = sys.modules["__main__"]
    unset = [name for name in _THREAD_LIMITS if name not in os.environ]
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        for name in unset:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def stop_at_exit(owner: object, stop: Callable[..., None], *args: Any) -> Finalize[None]:
    """Calls ``stop(*args)`` once: when `owner` is garbage, when the interpreter ends, or when the result is called.

    At exit multiprocessing waits for all children, indefinitely: `weakref.finalize` may run later than that.
    """
    return Finalize(owner, stop, args, exitpriority=1)


def become_worker() -> None:
    """To be called first in a spawned process: signals are left to the parent, whose end is also this one's."""
    # Both may reach the whole process group; the parent alone decides what they mean.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    # Even if the process hangs in user code.
    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
