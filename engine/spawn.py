"""Processes that minding starts: spawned, lean, and never left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any

SPAWN = multiprocessing.get_context("spawn")
"""A fork after any operator of MindSpore can hang."""
_THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def lean_start() -> Iterator[None]:
    """While a process is spawned: hides the main script, and gives NumPy one thread.

    Spawn would run the user's script again in the child, with all of its imports, MindSpore among them. What is
    defined in the script still arrives, because cloudpickle sends the code of `__main__` by value.
    """
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


def stop_at_exit(owner: object, stop: Callable[..., None], *args: Any) -> None:
    """Calls ``stop(*args)`` once, when `owner` is garbage or when the interpreter ends.

    At its end multiprocessing waits for all children, for ever: `weakref.finalize` may be later than that.
    """
    multiprocessing.util.Finalize(owner, stop, args, exitpriority=1)


def become_worker() -> None:
    """To be called first in a spawned process: signals are left to the parent, whose end is this one's, too."""
    # Both may reach the whole process group; the parent alone decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    # Also when the process hangs in somebody's code.
    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
