"""The worker inside an actor: `engine.lanes.worker.serve` in one thread."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.lanes.serialization import serialize
from minding.engine.lanes.threads import Pipe, QueueChannel
from minding.engine.lanes.transport import STARTING, ChannelClosed, Snapshot
from minding.engine.lanes.worker import serve
from minding.engine.lanes.worker_task import WorkerTask, replace_task
from minding.engine.types import Array

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
Returned = tuple[bytes, list[Array]]
Beat = tuple[float, int, int, str]
"""Clock, member, process id, name of the machine."""


class Serving:
    """A worker that gets messages from calls and returns answers to them.

    MindSpore belongs to one thread, but calls of an actor arrive in several: the worker has a separate thread.

    Args:
      shapes: shape and dtype of each weight by name.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._in, self._out = Pipe(), Pipe()
        self._over, self._how = threading.Event(), "ended"
        self.member = STARTING
        self._thread = threading.Thread(target=self._run, args=(shapes,), daemon=True, name="minding-lane")
        self._thread.start()

    @property
    def beats(self) -> int:
        """Not used here: the main process counts the beats."""
        return 0

    def put(self, place: Any, header: bytes, buffers: Sequence[Array]) -> None:
        """Gives the worker a message."""
        # The worker may have ended; its last message then says why.
        with contextlib.suppress(ChannelClosed):
            self._in.put((header, [bytearray(buffer) for buffer in buffers], place))

    def call(self, place: Any, header: bytes, buffers: Sequence[Array]) -> Returned | None:
        """Gives the worker a request and waits for its answer; None if the worker ended without an answer."""
        self.put(place, header, buffers)
        try:
            header, answered, _ = self._out.get(None)
        except ChannelClosed:
            return None
        return header, [np.frombuffer(buffer, np.uint8) for buffer in answered]

    def end(self) -> None:
        """Lets the worker end after it has answered its requests."""
        self.put(None, serialize(None)[0], [])

    def beat(self) -> Beat:
        """Returns a sign of life."""
        return time.monotonic(), self.member, os.getpid(), platform.node()

    def ended(self) -> str:
        """Waits for the worker's end; returns a description of it."""
        self._over.wait()
        return self._how

    def _run(self, shapes: Shapes) -> None:
        task = WorkerTask()
        replace_task(task)
        channel = QueueChannel(self._out, self._in)
        try:
            serve(channel, PlacedWeights(shapes), self, task)
        except BaseException as error:  # The other end has to see its death.
            self._how = f"ended with {error!r}"
        finally:
            channel.close()
            self._over.set()


class PlacedWeights:
    """A `WeightReader` of versions that arrive with each request, in one or several objects (see `RayBoard`).

    Args:
      shapes: shape and dtype of each weight by name.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def empty(self) -> dict[str, Array]:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in self._shapes.items()}

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        newest = {name: array for placed in snapshot.place for name, array in placed.items()}
        for name in self._shapes:
            into[name][...] = newest[name]
