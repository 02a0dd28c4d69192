"""Workers in processes of this machine: spawned, with shared memory between them and the main process.

`SharedMemoryChannel` carries the messages, `SharedWeights` the weights, `SharedHeartbeat` the signs of life.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import platform
import resource
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from minding.engine.errors import ConfigError, LaneError
from minding.engine.lanes.options import cores
from minding.engine.lanes.sockets import OnThisMachine
from minding.engine.lanes.transport import (
    STARTING,
    Channel,
    ChannelClosed,
    Port,
    Snapshot,
    WeightReader,
    WeightStore,
    serialize,
)
from minding.engine.lanes.worker import serve
from minding.engine.lanes.worker_task import WorkerTask, replace_task
from minding.engine.process.alive import is_stopped
from minding.engine.process.spawn import SPAWN, WorkerProcess, become_worker
from minding.engine.types import Array

_ALIGNMENT = 64  # bytes, one cache line
_SMALLEST = 1 << 12  # bytes of a slot
_FREE = -1
_BEAT = 0.5  # s
_FILES = 5
"""File descriptors of a worker in the main process: its socket, two of its process, and a segment per direction."""
_OTHER_FILES = 48
"""File descriptors that are left for checkpoints, logs and environments of the main process."""


def open_files() -> int:
    """The number of file descriptors that this process has open."""
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


class ProcessTransport(OnThisMachine):
    """A `Transport` that spawns a process for each worker; see `SharedMemoryChannel` and `SharedWeights`."""

    own_process = True
    increments = False
    """Copying a whole state through shared memory takes no longer than finding its changes."""

    @property
    def cores(self) -> list[int]:
        return cores()

    def store(self, arrays: Mapping[str, Array], slots: int) -> SharedWeights:
        return SharedWeights(arrays, slots)

    def inspect(self, workers: int) -> tuple[str, ...]:
        used, limit = open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        needed = used + workers * _FILES + _OTHER_FILES
        if limit != resource.RLIM_INFINITY and needed > limit:
            most = max(0, limit - used - _OTHER_FILES) // _FILES
            raise ConfigError(
                f"{workers} workers need {workers * _FILES} file descriptors, {_FILES} each, and this process may open "
                f"{limit}, of which {used} are in use: raise the limit with `ulimit -n {needed}`, or lower "
                f"lanes.collectors (room for {most} workers, evaluators included)"
            )
        return ()

    def start(
        self, name: str, store: WeightStore, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> ProcessWorker:
        here, there = SPAWN.Pipe()
        heartbeat = SharedHeartbeat()
        process = WorkerProcess(
            target=_main, args=(there, depth, store, heartbeat, cores), name=f"minding-{name.replace(' ', '-')}"
        )
        process.launch()
        # Now only the worker holds the other end, so that its death closes the channel.
        there.close()
        return ProcessWorker(process, SharedMemoryChannel(here, depth), heartbeat)


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

    def has_better_place(self) -> bool:
        return False

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


def _main(
    connection: Connection, depth: int, weights: WeightReader, heartbeat: SharedHeartbeat, cores: frozenset[int]
) -> None:
    become_worker()
    heartbeat.start()
    # This comes before any part of the plan is built.
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    task = WorkerTask()
    replace_task(task)
    serve(SharedMemoryChannel(connection, depth), weights, heartbeat, task)


class SharedHeartbeat:
    """A `Heartbeat` of two numbers in shared memory.

    A thread of the worker makes it beat, even during a long call of Python code, but not while the process is stopped
    or hangs in compiled code that keeps Python from running. The worker receives it as an argument of its process.
    """

    def __init__(self) -> None:
        self._cells: Any = SPAWN.RawArray(ctypes.c_int64, [0, STARTING])

    @property
    def beats(self) -> int:
        return int(self._cells[0])

    def expect(self, deadline: float) -> None: ...

    @property
    def member(self) -> int:
        return int(self._cells[1])

    @member.setter
    def member(self, number: int) -> None:
        self._cells[1] = number

    def start(self) -> None:
        """In the worker: beats from now on."""

        def beat() -> None:
            while True:
                self._cells[0] += 1
                time.sleep(_BEAT)

        threading.Thread(target=beat, daemon=True, name="heartbeat").start()


class SharedMemoryChannel:
    """A `Channel` over an unnamed pair of sockets, with arrays in anonymous shared memory.

    Pickle (protocol 5) splits a message into a short header, which goes over the socket, and the buffers of its
    arrays, which the sender copies once into shared memory and the receiver once out of it. The memory has no name and
    ends with the processes that map it, whatever ends them. It is a ring of `depth` slots, each as large as the largest
    message so far.

    Both ends are processes of one run, on a socket without an address, so pickled bytes come from nowhere else.
    """

    def __init__(self, connection: Connection, depth: int) -> None:
        self._connection = connection
        self._depth = depth
        self._out: _Segment | None = None
        self._in: _Segment | None = None
        self._sent = self._received = 0
        self.place: Any = None

    def fileno(self) -> int:
        """The file descriptor of the socket, to wait for several channels at once."""
        return self._connection.fileno()

    def send(self, message: Any, place: Any = None) -> None:
        header, buffers = serialize(message)
        sizes = [len(buffer) for buffer in buffers]
        grown = self._grow(sizes)
        if buffers:
            assert self._out is not None
            self._out.write(self._sent % self._depth, buffers)
        try:
            self._connection.send_bytes(pickle.dumps((header, sizes, grown, place)))
            if grown:
                assert self._out is not None
                reduction.send_handle(self._connection, self._out.file, None)  # type: ignore[arg-type]
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        self._sent += 1

    def receive(self, timeout: float | None = None) -> Any:
        try:
            if not self._connection.poll(timeout):
                raise TimeoutError(f"no message within {timeout} s")
            # The bytes come from a process of this run, see the class.
            header, sizes, grown, place = pickle.loads(self._connection.recv_bytes())  # noqa: S301
            if grown:
                if self._in is not None:
                    self._in.close()
                self._in = _Segment(reduction.recv_handle(self._connection), grown, self._depth)
        except TimeoutError:
            raise
        except (EOFError, OSError) as error:
            raise ChannelClosed(str(error)) from error
        buffers: Sequence[bytearray] = ()
        if sizes:
            assert self._in is not None
            buffers = self._in.read(self._received % self._depth, sizes)
        self._received += 1
        self.place = place
        return pickle.loads(header, buffers=buffers)  # noqa: S301

    def close(self) -> None:
        self._connection.close()
        for segment in (self._out, self._in):
            if segment is not None:
                segment.close()
        self._out = self._in = None

    def _grow(self, sizes: Sequence[int]) -> int:
        """Creates a larger segment if a message does not fit; returns its bytes per slot, 0 if the old one suffices."""
        needed = sum(_aligned(size) for size in sizes)
        if not sizes or (self._out is not None and needed <= self._out.slot):
            return 0
        slot = max(_SMALLEST, 1 << (needed - 1).bit_length())
        # Messages in the old segment stay readable: the receiver keeps it until the first message in the new one.
        if self._out is not None:
            self._out.close()
        self._out = _Segment(_anonymous_file(), slot, self._depth)
        return slot


class _Segment:
    """Anonymous shared memory of `depth` slots."""

    def __init__(self, file: int, slot: int, depth: int) -> None:
        self.file = file
        self.slot = slot
        if os.fstat(file).st_size < slot * depth:
            os.ftruncate(file, slot * depth)
        self._map = mmap.mmap(file, slot * depth)
        self._bytes = memoryview(self._map)

    def write(self, index: int, buffers: Sequence[memoryview]) -> None:
        position = index * self.slot
        for buffer in buffers:
            self._bytes[position : position + len(buffer)] = buffer
            position += _aligned(len(buffer))

    def read(self, index: int, sizes: Sequence[int]) -> list[bytearray]:
        position, buffers = index * self.slot, []
        for size in sizes:
            buffers.append(bytearray(self._bytes[position : position + size]))
            position += _aligned(size)
        return buffers

    def close(self) -> None:
        self._bytes.release()
        self._map.close()
        os.close(self.file)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _anonymous_file() -> int:
    """A file without a name, which ends with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("minding", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file, contextlib.suppress(OSError):
        return os.dup(file.fileno())
    raise OSError("no anonymous shared memory: neither memfd_create nor a temporary file")


class SharedWeights:
    """A `WeightStore` in shared memory that holds several versions, each in its own slot.

    The learner writes a version into a slot that no worker reads, and only then names it in a request; the slot is kept
    until the worker has answered. A slot is therefore never written while a worker may read it: torn reads are
    impossible, and there is no lock that a killed process could keep. Each slot also carries its version, which a
    reader checks before and after it copies.

    The store itself goes to worker processes as an argument of `multiprocessing.Process`; only the process that made
    it publishes.
    """

    def __init__(self, arrays: Mapping[str, Array], slots: int) -> None:
        self._layout: dict[str, tuple[int, tuple[int, ...], str]] = {}
        size = _ALIGNMENT
        for name, array in arrays.items():
            self._layout[name] = (size, array.shape, array.dtype.str)
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._slots, self._slot_size = slots, size
        self._block: Any = SPAWN.RawArray(ctypes.c_byte, size * slots)
        self._map()
        for stamp in self._stamps:
            stamp[0] = _FREE
        self._users = [0] * slots
        self._newest: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_layout", "_slots", "_slot_size", "_block")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()

    def _map(self) -> None:
        starts = [slot * self._slot_size for slot in range(self._slots)]
        self._stamps = [np.frombuffer(self._block, np.int64, 1, start) for start in starts]
        # A comparison of all bits, including the gaps between arrays, which stay zero.
        words = self._slot_size // 8
        self._contents = [np.frombuffer(self._block, np.int64, words, start)[_ALIGNMENT // 8 :] for start in starts]
        self._views = [{name: self._view(start, name) for name in self._layout} for start in starts]

    def _view(self, start: int, name: str) -> Array:
        offset, shape, dtype = self._layout[name]
        return np.frombuffer(self._block, dtype, int(np.prod(shape)), start + offset).reshape(shape)

    # The learner's side

    @property
    def version(self) -> int:
        return _FREE if self._newest is None else int(self._stamps[self._newest][0])

    def publish(self, arrays: Mapping[str, Array]) -> int:
        slot = next((s for s, users in enumerate(self._users) if not users and s != self._newest), None)
        if slot is None:
            raise LaneError(f"weights: all {self._slots} versions are in use; a version was not released")
        self._stamps[slot][0] = _FREE
        for name, view in self._views[slot].items():
            view[...] = arrays[name]
        if self._newest is None or not np.array_equal(self._contents[slot], self._contents[self._newest]):
            self._stamps[slot][0] = self.version + 1
            self._newest = slot
        return self.version

    def retain(self) -> Snapshot:
        assert self._newest is not None
        self._users[self._newest] += 1
        return Snapshot(self.version, self._newest)

    def release(self, snapshot: Snapshot) -> None:
        self._users[snapshot.place] -= 1

    def close(self) -> None:
        # The memory is free once nothing refers to it, whatever still refers to this object.
        self._block, self._stamps, self._contents, self._views = None, [], [], []

    # The readers' side

    def empty(self) -> dict[str, Array]:
        return {name: np.zeros(shape, dtype) for name, (_, shape, dtype) in self._layout.items()}

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        slot, version = snapshot.place, snapshot.version
        before = int(self._stamps[slot][0])
        for name, view in self._views[slot].items():
            into[name][...] = view
        after = int(self._stamps[slot][0])
        if not before == after == version:
            raise LaneError(f"weights: slot {slot} held version {before}, then {after}; expected {version}")
