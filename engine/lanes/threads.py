"""Workers in threads of this process: for tests, since threads start at once, and for debuggers, which see all lanes.

Threads share the interpreter with the learner, so they gain little speed. Members, messages and weights are copies, as
in other processes; only the variables of modules are shared. MindSpore belongs to one thread of a process, so members
that would load it are refused.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import platform
import queue
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.errors import LaneError
from minding.engine.lanes.sockets import OnThisMachine
from minding.engine.lanes.state_diff import same_bits
from minding.engine.lanes.transport import STARTING, ChannelClosed, Port, Snapshot, WeightStore, serialize
from minding.engine.lanes.worker import serve
from minding.engine.lanes.worker_task import WorkerTask, replace_task_in_thread
from minding.engine.types import Array

_log = logging.getLogger("minding.lanes")
_Parts = tuple[bytes, list[bytearray], Any]


class ThreadTransport(OnThisMachine):
    """A `Transport` that starts a thread for each worker."""

    own_process = increments = False
    cores: tuple[int, ...] = ()
    """Empty: threads share the interpreter, so pinning them would not help."""

    def store(self, arrays: Mapping[str, Array], slots: int) -> CopiedWeights:
        return CopiedWeights(arrays, slots)

    def inspect(self, workers: int) -> tuple[str, ...]:
        return ()

    def start(
        self, name: str, store: WeightStore, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> ThreadWorker:
        return ThreadWorker(name, store)


class ThreadWorker:
    """A `WorkerHandle` of a thread, which cannot be ended by force: a killed one ends when it next uses its
    channel."""

    kind = where = "thread"
    pid = None
    clock_error = 0.0

    def __init__(self, name: str, store: WeightStore) -> None:
        self._name, self.node = name, platform.node()
        self._ended = "ended"
        self.channel, there = channel_pair()
        self.heartbeat = ThreadHeartbeat()
        self._thread = threading.Thread(
            target=self._run, args=(there, store), daemon=True, name=f"minding-{name.replace(' ', '-')}"
        )
        self._thread.start()

    def hindrance(self) -> str | None:
        return None

    def has_better_place(self) -> bool:
        return False

    def join(self, timeout: float) -> str | None:
        self._thread.join(timeout)
        return None if self._thread.is_alive() else self._ended

    def kill(self) -> None:
        self.channel.close()

    def close(self) -> None:
        self.channel.close()
        # A thread that waits for a message ends at once.
        if self.join(0.1) is None:
            _log.warning(
                "the thread of %s still runs: a thread cannot be ended from outside. It ends once the member that runs "
                "returns; lanes.transport=processes ends workers at once",
                self._name,
            )

    def _run(self, channel: QueueChannel, store: WeightStore) -> None:
        task = WorkerTask()
        try:
            with replace_task_in_thread(task):
                serve(channel, store, self.heartbeat, task)
        except BaseException as error:  # The other end has to see its death.
            self._ended = f"ended with {error!r}"
        finally:
            channel.close()


class ThreadHeartbeat:
    """A `Heartbeat` of a thread, which lives as long as this process."""

    def __init__(self) -> None:
        self.member = STARTING
        self._looks = itertools.count(1)

    @property
    def beats(self) -> int:
        return next(self._looks)

    def expect(self, deadline: float) -> None: ...


class QueueChannel:
    """A `Channel` between threads. Messages are pickled and loaded again, so that both ends have their own
    copies."""

    def __init__(self, out: Pipe, into: Pipe) -> None:
        self._out, self._in = out, into
        self.place: Any = None

    def send(self, message: Any, place: Any = None) -> None:
        header, buffers = serialize(message)
        self._out.put((header, [bytearray(buffer) for buffer in buffers], place))

    def receive(self, timeout: float | None = None) -> Any:
        header, buffers, self.place = self._in.get(timeout)
        return pickle.loads(header, buffers=buffers)  # noqa: S301 - from a thread of this process

    def close(self) -> None:
        self._out.end()
        self._in.abandon()


def channel_pair() -> tuple[QueueChannel, QueueChannel]:
    there, back = Pipe(), Pipe()
    return QueueChannel(there, back), QueueChannel(back, there)


class Pipe:
    """One direction of a channel."""

    def __init__(self) -> None:
        # None marks the end.
        self._queue: queue.SimpleQueue[_Parts | None] = queue.SimpleQueue()
        self._closed = False

    def put(self, parts: _Parts) -> None:
        if self._closed:
            raise ChannelClosed("the other end is closed")
        self._queue.put(parts)

    def get(self, timeout: float | None) -> _Parts:
        try:
            parts = self._queue.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no message within {timeout} s") from None
        if parts is None:
            # Put back for the next reader.
            self._queue.put(None)
            raise ChannelClosed("the other end is closed")
        return parts

    def end(self) -> None:
        """Closes the sending end; messages in the pipe can still be received."""
        self._closed = True
        self._queue.put(None)

    def abandon(self) -> None:
        """Closes the receiving end."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get()
        self._queue.put(None)


class CopiedWeights:
    """A `WeightStore` of copies that are never changed; versions share equal arrays."""

    def __init__(self, arrays: Mapping[str, Array], slots: int) -> None:
        self._shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        self._slots = slots
        self._versions: dict[int, dict[str, Array]] = {}
        self._users: dict[int, int] = {}
        self.version = -1

    def publish(self, arrays: Mapping[str, Array]) -> int:
        newest = self._versions.get(self.version)
        copies = {}
        for name, (_, dtype) in self._shapes.items():
            array = np.asarray(arrays[name], dtype, order="C")
            same = newest is not None and same_bits(newest[name], array)
            copies[name] = newest[name] if newest is not None and same else array.copy()
        # The same limit as for a store with slots, so that a missing release is found here, too.
        held = sum(users > 0 or version == self.version for version, users in self._users.items())
        if held >= self._slots:
            raise LaneError(f"weights: all {self._slots} versions are in use; a version was not released")
        for version in [version for version, users in self._users.items() if not users and version != self.version]:
            del self._versions[version], self._users[version]
        if newest is None or any(newest[name] is not copy for name, copy in copies.items()):
            self.version += 1
            self._versions[self.version], self._users[self.version] = copies, 0
        return self.version

    def retain(self) -> Snapshot:
        self._users[self.version] += 1
        return Snapshot(self.version, None)

    def release(self, snapshot: Snapshot) -> None:
        self._users[snapshot.version] -= 1

    def close(self) -> None:
        self._versions.clear()

    def empty(self) -> dict[str, Array]:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in self._shapes.items()}

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        copies = self._versions.get(snapshot.version)
        if copies is None:
            raise LaneError(f"weights: version {snapshot.version} is no longer stored: it was released too early")
        for name, copy in copies.items():
            into[name][...] = copy
