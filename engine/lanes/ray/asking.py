"""Questions to an inference server that is an actor: calls of its method `ask`."""

from __future__ import annotations

import pickle
import queue
import sys
import time
from concurrent.futures import Future
from typing import Any

from minding.engine.lanes.inference.port import Question, Reply
from minding.engine.lanes.inference.sockets import packed
from minding.engine.types import Array

_RETRY = 0.1  # s between two attempts to reach a server
_asked: queue.SimpleQueue[tuple[int, bytes, Future[bytes]]] = queue.SimpleQueue()
"""The questions that calls of this actor brought, for the thread of its worker."""


class ActorPort:
    """A `Port` of an actor that is found by its name.

    Attributes:
      name: name of the actor, in the namespace of the run.
      askers: number of workers that ask, each of which may wait for an answer.
    """

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
