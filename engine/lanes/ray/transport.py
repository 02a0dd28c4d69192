"""Workers as actors of a Ray cluster.

An answer is the return value of a call on one actor, and a replacement is another actor: what a lost worker still sends
has nowhere to arrive. Which worker is replaced when is decided by `engine.lanes.supervised`, as for all transports: Ray
restarts nothing.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import importlib.metadata
import os
import pickle
import signal
import socket
import sys
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.chain.trace import Span
from minding.engine.errors import ConfigError, MissingExtraError
from minding.engine.lanes.messages import Answer
from minding.engine.lanes.options import cores
from minding.engine.lanes.ray.host import host_class
from minding.engine.lanes.serialization import serialize
from minding.engine.lanes.threads import CopiedWeights
from minding.engine.lanes.transport import STARTING, ChannelClosed, Snapshot, WeightBoard
from minding.engine.types import Array

LOCAL = "local"
_ON_ALL_ADDRESSES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable: whether nodes on other machines may join, for which it listens on all addresses."""
_OLDEST = (2, 60)
_REACHED = 5.0  # s
_BEAT = 0.5  # s
_SOON = 0.2  # s
_END = 2.0  # s


class RayTransport:
    """A `Transport` that starts an actor for each worker.

    Ray is started with the first worker. A cluster on this machine ends with the run, and workers share its cores as
    processes do; on any other each takes a CPU.

    Args:
      address: ``local``, or HOST:PORT of a cluster.
    """

    own_process = True
    cores: tuple[int, ...] = ()

    def __init__(self, address: str) -> None:
        self._address = address
        self._started = False
        self._workers: weakref.WeakSet[RayWorker] = weakref.WeakSet()

    @property
    def room(self) -> int:
        if self._address == LOCAL:
            return len(cores()) - 2
        return int(self._connected().cluster_resources().get("CPU", 0)) - 2

    def board(self, arrays: Mapping[str, Array], slots: int) -> RayBoard:
        return RayBoard(self._connected(), arrays, slots)

    def start(self, name: str, board: WeightBoard, depth: int, cores: frozenset[int]) -> RayWorker:
        ray = self._connected()
        shapes = {array_name: (array.shape, array.dtype.str) for array_name, array in board.empty().items()}
        host = ray.remote(
            num_cpus=0 if self._address == LOCAL else 1,
            max_restarts=0,
            max_task_retries=0,
            enable_task_events=False,
            concurrency_groups={"beat": 1, "end": 1},
        )(host_class())
        worker = RayWorker(ray, host.remote(list(sys.path), shapes))
        self._workers.add(worker)
        return worker

    def close(self) -> None:
        if not self._started:
            return
        self._started = False
        atexit.unregister(self.close)
        workers = list(self._workers)
        for worker in workers:
            with contextlib.suppress(ChannelClosed):
                worker.channel.send(None)
        deadline = time.monotonic() + _END
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            worker.close()
        _ray().shutdown()

    def _connected(self) -> Any:
        """Ray, once it runs."""
        if not self._started:
            check_ray(self._address)
            if self._address == LOCAL:
                _stay_within_this_machine()
        ray = _ray()
        if not ray.is_initialized():
            handler = signal.getsignal(signal.SIGTERM)
            try:
                ray.init(**self._init())
            finally:
                # Ray puts its own in place.
                with contextlib.suppress(ValueError):
                    signal.signal(signal.SIGTERM, handler)
            self._started = True
            # After Ray's own, so that it comes before it: workers end while there is a cluster.
            atexit.register(self.close)
        return ray

    def _init(self) -> dict[str, Any]:
        quiet = {"log_to_driver": False, "configure_logging": False}
        if self._address == LOCAL:
            return {"address": LOCAL, "include_dashboard": False, **quiet}
        return {"address": self._address, **quiet}


def check_ray(address: str) -> None:
    """Refuses a cluster that cannot be used from here, without importing Ray.

    Raises:
      MissingExtraError: Ray is not installed.
      ConfigError: it is too old, or nothing answers at the address.
    """
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError("ray", "ray", "lanes.transport=ray") from None
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise ConfigError(f"lanes.transport=ray: Ray {version} is too old: pip install 'minding[ray]'")
    if address == LOCAL:
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACHED).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"lanes.address={address!r}: no Ray cluster answers there ({error}): expected HOST:PORT of one that was "
            "started with `ray start --head --port=PORT`, or local"
        ) from None


def _stay_within_this_machine() -> None:
    """Has Ray listen on the loopback address only, where it would listen on all addresses of the machine.

    Raises:
      ConfigError: the program imported Ray earlier, which decides it when it is imported.
    """
    if _ON_ALL_ADDRESSES in os.environ:
        return
    if "ray" in sys.modules:
        raise ConfigError(
            f"lanes.address=local: Ray was imported before the run and would listen on all addresses of this machine: "
            f"set {_ON_ALL_ADDRESSES}=0 in the environment (or 1 if that is what you want)"
        )
    os.environ[_ON_ALL_ADDRESSES] = "0"


def _ray() -> Any:
    import ray
    import ray.exceptions

    return ray


class RayWorker:
    """A `WorkerHandle` of an actor.

    Args:
      ray: the module.
      actor: it is held by.
    """

    kind = "actor"

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self.heartbeat = Pulse(ray, actor)
        self.channel = RayChannel(ray, actor, self.heartbeat)
        self._ended = actor.ended.options(concurrency_group="end").remote()

    @property
    def where(self) -> str:
        self.heartbeat.look()
        if not self.heartbeat.pid:
            return "actor that has no place yet"
        return f"actor {self.heartbeat.pid} on {self.heartbeat.node}"

    @property
    def node(self) -> str:
        self.heartbeat.look()
        return self.heartbeat.node

    @property
    def pid(self) -> int | None:
        self.heartbeat.look()
        return self.heartbeat.pid or None

    def hindrance(self) -> str | None:
        return None

    def join(self, timeout: float) -> str | None:
        if not self._ray.is_initialized():
            return "ended with its cluster"
        ready, _ = self._ray.wait([self._ended], timeout=timeout)
        if not ready:
            return None
        try:
            return str(self._ray.get(self._ended))
        except self._ray.exceptions.RayError as error:
            return f"ended: {str(error).splitlines()[0].rstrip('.')}"

    def kill(self) -> None:
        self.channel.close()
        if self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)

    def close(self) -> None:
        self.kill()


class Pulse:
    """A `Heartbeat` of an actor: asks it, and counts its answers.

    Attributes:
      pid, node: of the worker; 0 and empty before its first sign of life.
      offset: what is added to its clock to get this process's, 0 where that cannot be told from an error.
    """

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._beats, self._member = 0, STARTING
        self.pid, self.node, self.offset = 0, "", 0.0
        self._error = float("inf")
        self._sent, self._answer = 0.0, None
        self._ask()

    @property
    def beats(self) -> int:
        self.look()
        return self._beats

    @property
    def member(self) -> int:
        """As of now, if it answers soon."""
        self.look(_SOON)
        if self._answer is None:
            self._ask()
            self.look(_SOON)
        return self._member

    @member.setter
    def member(self, number: int) -> None:
        raise AttributeError("the worker sets it")

    def look(self, timeout: float = 0.0) -> None:
        """Takes in an answer if there is one within `timeout` seconds, and asks again after a while."""
        if not self._ray.is_initialized():
            return
        if self._answer is None and time.monotonic() - self._sent >= _BEAT:
            self._ask()
        if self._answer is None:
            return
        ready, _ = self._ray.wait([self._answer], timeout=timeout)
        if ready:
            answer, self._answer = self._answer, None
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._take(self._ray.get(answer))

    def _ask(self) -> None:
        self._sent = time.monotonic()
        self._answer = self._actor.beat.options(concurrency_group="beat").remote()

    def _take(self, beat: tuple[float, int, int, str]) -> None:
        now = time.monotonic()
        clock, self._member, self.pid, self.node = beat
        self._beats += 1
        error = (now - self._sent) / 2
        if error < self._error:
            self._error = error
            offset = (now + self._sent) / 2 - clock
            self.offset = offset if abs(offset) > error else 0.0


class RayChannel:
    """A `Channel` to an actor. The first message has no answer, and each later one is a call whose value is its own."""

    def __init__(self, ray: Any, actor: Any, pulse: Pulse) -> None:
        self._ray, self._actor, self._pulse = ray, actor, pulse
        self._answers: collections.deque[Any] = collections.deque()
        self._begun = self._closed = False
        self.place: Any = None

    def send(self, message: Any, place: Any = None) -> None:
        if self._closed or not self._ray.is_initialized():
            raise ChannelClosed("the other end is closed")
        if message is None:
            self._actor.end.remote()
            return
        header, buffers = serialize(message)
        # Copied when the call is made.
        parts = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        if self._begun:
            self._answers.append(self._actor.call.remote(place, header, *parts))
        else:
            self._begun = True
            self._actor.begin.remote(header, *parts)

    def receive(self, timeout: float | None = None) -> Any:
        if self._closed or not self._answers or not self._ray.is_initialized():
            raise ChannelClosed("nothing more will arrive")
        ready, _ = self._ray.wait([self._answers[0]], timeout=timeout)
        if not ready:
            raise TimeoutError(f"no message within {timeout} s")
        answer = self._answers.popleft()
        try:
            returned = self._ray.get(answer)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:
            self._closed = True
            raise ChannelClosed(str(error)) from error
        if returned is None:
            self._closed = True
            raise ChannelClosed("the worker has ended")
        header, buffers = returned
        message = pickle.loads(header, buffers=[bytearray(buffer) for buffer in buffers])  # noqa: S301
        if isinstance(message, Answer) and self._pulse.offset:
            shift = self._pulse.offset
            message.spans[:] = [Span(span.name, span.start + shift, span.end + shift) for span in message.spans]
        return message

    def close(self) -> None:
        self._closed = True
        self._answers.clear()


class RayBoard(CopiedWeights):
    """A `WeightBoard` whose versions are in Ray's object store, once each, as long as one of them is in use.

    Args:
      ray: the module.
      arrays, slots: see `CopiedWeights`.
    """

    def __init__(self, ray: Any, arrays: Mapping[str, Array], slots: int) -> None:
        super().__init__(arrays, slots)
        self._ray = ray
        self._places: dict[int, Any] = {}

    def publish(self, arrays: Mapping[str, Array]) -> int:
        version = super().publish(arrays)
        # What is no longer held is released with its reference.
        self._places = {held: place for held, place in self._places.items() if held in self._versions}
        if version not in self._places:
            self._places[version] = self._ray.put(self._versions[version])
        return version

    def retain(self) -> Snapshot:
        return Snapshot(super().retain().version, self._places[self.version])
