"""A group of processes among which MindSpore's collective operators work, such as AllReduce.

The processes are started by this one (`start`), or by the user with MindSpore's ``msrun`` (`started_by_msrun`). Each
calls `join` once, which returns when all have joined; rank 0 is the main process. Besides the processes that compute, a
group has a scheduler, by which they find each other.

MindSpore reads how long an operator waits for the other processes, in seconds, from ``MS_NODE_TIMEOUT``. That is also
how long a group does not notice that a process has died; the compiled call then takes another 3 s to raise its error.
The scheduler reads the same variable for how long a process may be silent; after that, MindSpore ends every process of
the group with SIGTERM, before it can save anything. The scheduler of this module therefore waits without a limit: the
operators notice who is missing.
"""

import atexit
import contextlib
import importlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from minding.engine.process import runtime
from minding.engine.process.spawn import WorkerProcess, become_worker, stop_at_exit

_ROLE, _WORKERS = "MS_ROLE", "MS_WORKER_NUM"
_WORKER, _SCHEDULER = "MS_WORKER", "MS_SCHED"
NODE_TIMEOUT = "MS_NODE_TIMEOUT"
_WAIT = "5"  # s
_FOREVER = str(10**9)  # s
LOOPBACK = "127.0.0.1"
exit_code: int | None = None
"""The exit code of this process, once the command line knows it."""
_abandoned = False


def schedules() -> bool:
    """Whether ``msrun`` has started this process as the scheduler of its group."""
    return os.environ.get(_ROLE) == _SCHEDULER


def started_by_msrun() -> int | None:
    """The number of learners that ``msrun`` has started with this process; None if it has not started this process."""
    return int(os.environ[_WORKERS]) if os.environ.get(_ROLE) in (_WORKER, _SCHEDULER) else None


def join() -> int:
    """Joins the group that the environment variables describe; returns the rank of this process. MindSpore has to be
    prepared (`runtime.prepare`), except in the scheduler, which has no rank: there, this ends the process together with
    the group."""
    module = runtime.ms if schedules() else runtime.load()
    communication: Any = importlib.import_module(f"{module.__name__}.communication")
    # Threads of MindSpore's sockets say that they begin.
    with runtime.silent(1, 2):
        communication.init()
    if schedules():
        os._exit(0)
    # Registered after MindSpore's own functions, and so called before them.
    atexit.register(_hush)
    return rank()


def rank() -> int:
    """The rank of this process in its group."""
    communication: Any = importlib.import_module(f"{runtime.load().__name__}.communication")
    found: int = communication.get_rank()
    return found


def abandon() -> None:
    """Lets this process end without MindSpore's clean-up, for use once the group is lost: it waits up to 5 s for the
    thread that sends heartbeats."""
    global _abandoned
    _abandoned = True


def _hush() -> None:
    """Drops what MindSpore's threads say about leaving the group, which is the last thing that this process does. A
    thread that no longer reaches the scheduler, which may end first, sends SIGTERM to its own process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, ValueError):
        sys.stderr.flush()
    if _abandoned and exit_code is not None:
        with contextlib.suppress(AttributeError, ValueError):
            sys.stdout.flush()
        os._exit(exit_code)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def own_address() -> str:
    """The address at which other processes of the group reach this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        # Nothing is sent: the system chooses the address from which it would reach the scheduler.
        found.connect((os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])))
        address: str = found.getsockname()[0]
    return address


class Scheduler:
    """The process by which the processes of a group on this machine find each other."""

    def __init__(self, size: int) -> None:
        self._variables = {
            _WORKERS: str(size),
            "MS_SCHED_HOST": LOOPBACK,
            "MS_SCHED_PORT": str(_free_port()),
            NODE_TIMEOUT: os.environ.get(NODE_TIMEOUT, _WAIT),
        }
        self._process = WorkerProcess(target=_schedule, args=(self._variables,), name="learners-scheduler")
        self._process.launch()
        stop_at_exit(self, self._process.kill)

    @property
    def runs(self) -> bool:
        return self._process.is_alive()

    def member(self, rank: int) -> dict[str, str]:
        """The environment variables of a process, which it has to set before it calls `join`."""
        return {**self._variables, _ROLE: _WORKER, "MS_NODE_ID": str(rank)}


def _schedule(variables: Mapping[str, str]) -> None:
    """Runs the scheduler, which ends with the process that started it."""
    become_worker()
    os.environ.update(variables, **{_ROLE: _SCHEDULER, NODE_TIMEOUT: _FOREVER})
    join()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        port: int = found.getsockname()[1]
    return port
