"""Workers in processes of this machine: spawned, with shared memory between them and the main process."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from minding.engine.lanes.heartbeat import SharedHeartbeat
from minding.engine.lanes.inference.port import Port
from minding.engine.lanes.inference.sockets import SocketPort
from minding.engine.lanes.options import cores
from minding.engine.lanes.shared_memory import SharedMemoryChannel
from minding.engine.lanes.transport import Channel, WeightBoard, WeightReader
from minding.engine.lanes.weights import SharedWeights
from minding.engine.lanes.worker import serve
from minding.engine.lanes.worker_task import WorkerTask, replace_task
from minding.engine.process.spawn import SPAWN, WorkerProcess, become_worker
from minding.engine.types import Array


class ProcessTransport:
    """A `Transport` that spawns a process for each worker; see `SharedMemoryChannel` and `SharedWeights`."""

    own_process = True
    increments = False
    """Copying a whole state through shared memory takes no longer than finding its changes."""

    @property
    def cores(self) -> list[int]:
        return cores()

    @property
    def room(self) -> int:
        return len(cores()) - 2

    def board(self, arrays: Mapping[str, Array], slots: int) -> SharedWeights:
        return SharedWeights(arrays, slots)

    def inspect(self, workers: int) -> tuple[str, ...]:
        return ()

    def port(self, askers: int) -> SocketPort:
        return SocketPort()

    def start(
        self, name: str, board: WeightBoard, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> ProcessWorker:
        here, there = SPAWN.Pipe()
        heartbeat = SharedHeartbeat()
        process = WorkerProcess(
            target=_main, args=(there, depth, board, heartbeat, cores), name=f"minding-{name.replace(' ', '-')}"
        )
        process.launch()
        # Now only the worker holds the other end, so that its death closes the channel.
        there.close()
        return ProcessWorker(process, SharedMemoryChannel(here, depth), heartbeat)

    def close(self) -> None: ...


class ProcessWorker:
    """A `WorkerHandle` of a process."""

    kind = "process"
    clock_error = 0.0

    def __init__(self, process: BaseProcess, channel: Channel, heartbeat: SharedHeartbeat) -> None:
        self._process = process
        self.pid, self.where = process.pid, f"process {process.pid}"
        self.node = platform.node()
        self.channel: Channel = channel
        self.heartbeat = heartbeat

    def hindrance(self) -> str | None:
        return f"is stopped: `kill -CONT {self.pid}` lets it continue" if is_stopped(self.pid) else None

    def join(self, timeout: float) -> str | None:
        self._process.join(timeout)
        code = self._process.exitcode
        return None if code is None else f"ended with exit code {code}"

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.join()
        self._process.close()
        self.channel.close()


def is_stopped(pid: int | None) -> bool:
    """Whether a process has been stopped by a signal; False if that cannot be determined."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _main(
    connection: Connection, depth: int, weights: WeightReader, heartbeat: SharedHeartbeat, cores: frozenset[int]
) -> None:
    """The worker process."""
    become_worker()
    heartbeat.start()
    # This comes before any part of the plan is built.
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    task = WorkerTask()
    replace_task(task)
    serve(SharedMemoryChannel(connection, depth), weights, heartbeat, task)
