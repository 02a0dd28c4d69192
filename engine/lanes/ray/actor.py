"""Both sides of a Ray actor: a worker in one thread (`Serving`); and its questions to a server (`ActorPort`)."""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from minding.engine.lanes.sockets import packed
from minding.engine.lanes.threads import Pipe, QueueChannel
from minding.engine.lanes.transport import STARTING, ChannelClosed, Question, Reply, Snapshot, serialize
from minding.engine.lanes.worker import serve
from minding.engine.lanes.worker_task import WorkerTask, replace_task
from minding.engine.types import Array

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
Returned = tuple[bytes, list[Array]]
Beat = tuple[float, int, int, str]
"""Clock, member, process id, name of the machine."""
_RETRY = 0.1  # s between two attempts to reach a server
_asked: queue.SimpleQueue[tuple[int, bytes, Future[bytes]]] = queue.SimpleQueue()
"""The questions that calls of this actor brought, for the thread of its worker."""


def host_class() -> type[Any]:
    """The class of the actors. A local class is sent by value, so that an actor can load it before it can find
    modules."""

    class Host:
        def __init__(self, path: list[str], shapes: dict[str, Any], code: bytes | None = None) -> None:
            import sys

            # An actor finds modules beside the script and in the current folder only.
            sys.path += [entry for entry in path if entry not in sys.path]
            from minding.engine.lanes.ray.actor import Serving
            from minding.engine.lanes.ray.machines import unpack

            if code is not None:
                sys.path.append(unpack(code))

            self._serving = Serving(shapes)

        def begin(self, header: bytes, *buffers: Any) -> None:
            """Takes in the first message, which has no answer."""
            self._serving.put(None, header, buffers)

        def call(self, objects: int, header: bytes, *parts: Any) -> Any:
            """Takes in a request, its objects with weights and its buffers; returns its answer, None without one."""
            return self._serving.call(parts[:objects], header, parts[objects:])

        def ask(self, asker: int, data: bytes) -> bytes:
            """Answers a question of another worker, see `ActorPort`."""
            from minding.engine.lanes.ray.actor import ask

            return ask(asker, data)

        def end(self) -> None:
            self._serving.end()

        def beat(self) -> Any:
            import ray

            return *self._serving.beat(), ray.get_runtime_context().get_node_id()

        def ended(self) -> str:
            """Returns how the worker ended, once it has."""
            return self._serving.ended()

    return Host


class Serving:
    """A worker that gets messages from calls and returns answers to them.

    MindSpore belongs to one thread, but calls of an actor arrive in several: the worker has a separate thread.
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

    def expect(self, deadline: float) -> None:
        """Not used here."""

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
    """A `WeightReader` of versions that arrive with each request, in one or several objects (see `RayStore`)."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def empty(self) -> dict[str, Array]:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in self._shapes.items()}

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        newest = {name: array for placed in snapshot.place for name, array in placed.items()}
        for name in self._shapes:
            into[name][...] = newest[name]


class ActorPort:
    """A `Port` of an actor that is found by its name."""

    def __init__(self, name: str, askers: int) -> None:
        self.name, self.askers = name, askers

    def open(self) -> None: ...

    def close(self) -> None:
        """Does nothing: actors that ask are ended by force."""

    def connect(self, asker: int) -> ActorLine:
        return ActorLine(self.name, asker)

    def listen(self) -> ActorCounter:
        return ActorCounter()


class ActorLine:
    """A `Line` that looks up its server at the first question, and again if the server dies."""

    def __init__(self, name: str, asker: int) -> None:
        self._name, self._asker = name, asker
        self._actor: Any = None

    def ask(self, question: Question) -> tuple[Array, ...]:
        ray = sys.modules["ray"]
        data = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        while True:
            try:
                if self._actor is None:
                    self._actor = ray.get_actor(self._name)
                answer = ray.get(self._actor.ask.options(concurrency_group="ask").remote(self._asker, data))
                return pickle.loads(answer)  # type: ignore[no-any-return]  # noqa: S301 - from an actor of this run
            except ValueError:
                pass  # There is no server of this name at the moment.
            except ray.exceptions.RayActorError:
                self._actor = None
            time.sleep(_RETRY)

    def close(self) -> None:
        if self._actor is not None:
            self._actor.ask.options(concurrency_group="ask").remote(self._asker, b"")
            self._actor = None


class ActorCounter:
    """A `Counter` of the calls of an actor."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    @property
    def askers(self) -> int:
        return len(self._known)

    def receive(self, timeout: float) -> list[tuple[Question, Reply]]:
        found: list[tuple[Question, Reply]] = []
        wait: float = timeout
        while True:
            try:
                asker, data, future = _asked.get(timeout=wait)
            except queue.Empty:
                return found
            if data:
                self._known.add(asker)
                found.append((pickle.loads(data), _reply_to(future)))  # noqa: S301 - from an actor of this run
            else:
                self._known.discard(asker)
                future.set_result(b"")
            wait = 0.0

    def close(self) -> None: ...


def ask(asker: int, data: bytes) -> bytes:
    """Passes a question to the worker and waits for its answer; runs in a call of the actor."""
    future: Future[bytes] = Future()
    _asked.put((asker, data, future))
    return future.result()


def _reply_to(future: Future[bytes]) -> Reply:
    return lambda outputs: future.set_result(packed(outputs))
