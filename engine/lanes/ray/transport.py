"""Workers as actors of a Ray cluster.

An answer is the return value of a call on one actor, and a replacement is another actor: late messages of a lost worker
cannot arrive anywhere. As for all transports, `engine.lanes.supervised` decides which worker is replaced and when; Ray
restarts nothing.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import logging
import pickle
import platform
import secrets
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.chain.trace import Span
from minding.engine.console import console_logger
from minding.engine.errors import LaneError
from minding.engine.lanes.options import KINDS, LOCAL, cores
from minding.engine.lanes.ray.actor import ActorPort, host_class
from minding.engine.lanes.ray.cluster import JoinedCluster, LocalCluster
from minding.engine.lanes.ray.guard import Guard
from minding.engine.lanes.ray.machines import Places, check_resources, inspect, is_placed, pack, wanted_place
from minding.engine.lanes.threads import CopiedWeights
from minding.engine.lanes.transport import STARTING, Answer, ChannelClosed, Port, Snapshot, WeightStore, serialize
from minding.engine.types import Array

_log = logging.getLogger("minding.lanes")
Cluster = LocalCluster | JoinedCluster
_BEAT = 0.5  # s
_END = 2.0  # s
_LOOK = 10.0  # s between two looks for a free CPU
_DRIFT = 1e-4  # s per s, between the clocks of two machines
_ADVICE = {
    True: "continue it with `minding resume RUN`, which starts Ray again",
    False: "start the cluster again (`ray start` on each machine) and continue with `minding resume RUN`",
}
"""What to do when a cluster is lost, by whether it was local."""


class RayTransport:
    """A `Transport` that starts an actor for each worker.

    The first worker starts Ray. A cluster on this machine ends with the run, and workers share its cores as processes
    do; on any other cluster each worker takes a CPU.
    """

    own_process = increments = True
    cores: tuple[int, ...] = ()
    cpus = 1
    """CPUs that each worker takes on a cluster with other machines."""

    def __init__(
        self,
        address: str,
        insecure: bool = False,
        resources: Mapping[str, Mapping[str, float]] | None = None,
        code: str | None = None,
    ) -> None:
        self._code = None if code is None else pack(Path(code))
        # Its place in the cluster's object store, from which each machine takes it once.
        self._shipped: Any = None
        self._resources = {name: (resources or {}).get(kind, {}) for kind, name in KINDS.items()}
        self._address = address
        self._cluster: Cluster = LocalCluster() if address == LOCAL else JoinedCluster(address, insecure)
        self._started = False
        self._guard: Guard | None = None
        self._workers: weakref.WeakSet[RayWorker] = weakref.WeakSet()
        self._places = Places()

    @property
    def max_collectors(self) -> int:
        if self._address == LOCAL:
            return len(cores()) - 2
        return int(self._connected().cluster_resources().get("CPU", 0)) - 2

    def store(self, arrays: Mapping[str, Array], slots: int) -> RayStore:
        store = RayStore(self._connected(), arrays, slots)
        store.ray.hold(store)
        return store

    def port(self, askers: int) -> ActorPort:
        return ActorPort(f"minding-inference-{secrets.token_hex(8)}", askers)

    def start(
        self, name: str, store: WeightStore, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> RayWorker:
        ray = self._connected()
        shapes = {array_name: (array.shape, array.dtype.str) for array_name, array in store.empty().items()}
        cpus: float = 0 if self._address == LOCAL else self.cpus
        strategy: Any = "DEFAULT"
        wanted = dict(next((self._resources[kind] for kind in self._resources if name.startswith(kind)), {}))
        shares = False
        if wanted:
            # Only Ray knows which machine offers them.
            cpus = wanted.pop("CPU", cpus)
        elif cpus:
            strategy, cpus = self._places.choose(ray, self.cpus)
            shares = not cpus
        asked = port if isinstance(port, ActorPort) else None
        host = ray.remote(
            num_cpus=cpus,
            num_gpus=wanted.pop("GPU", 0),
            resources=wanted,
            max_restarts=0,
            max_task_retries=0,
            enable_task_events=False,
            concurrency_groups={"beat": 1, "end": 1, **({} if asked is None else {"ask": asked.askers})},
        )(host_class())
        options: dict[str, Any] = {} if asked is None else {"name": asked.name}
        # The first sign of life contains the process id.
        watch = self._cluster.watch if self._started else lambda pid: None
        options["scheduling_strategy"] = strategy
        if self._code is not None and self._shipped is None:
            self._shipped = ray.put(self._code)
        actor = ray.run(host.options(**options).remote, list(sys.path), shapes, self._shipped)
        worker = RayWorker(ray, actor, watch, cpus, self._places.lost)
        if shares:
            _log.warning("no CPU is free for %s: it shares those of another worker", name)
            worker.shares = lambda: not self._places.has_room(ray, self.cpus)
        self._workers.add(worker)
        ray.hold(worker)
        return worker

    def inspect(self, workers: int) -> tuple[str, ...]:
        if self._address == LOCAL:
            return ()
        ray = self._connected()
        for kind, wanted in self._resources.items():
            check_resources(ray.nodes(), kind, wanted)
        return inspect(ray, workers, self.cpus, self._address, self._places)

    def close(self) -> None:
        if not self._started or self._guard is None:
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
        if self._guard.is_initialized():
            self._guard.close()
            self._guard = None
            self._cluster.end()
        else:
            self._guard.on_leave = self._cluster.lost

    def _connected(self) -> Any:
        """Ray, once it runs."""
        if self._guard is not None:
            # A process that has lost a cluster cannot join another one.
            self._guard.check()
        elif (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
            # The program has connected Ray itself.
            self._guard = Guard(ray, _ADVICE[False])
        else:
            where = "on this machine" if self._address == LOCAL else f"at {self._address}"
            console_logger().info("%s Ray %s", "starting" if self._address == LOCAL else "joining", where)
            self._guard = Guard(self._cluster.start(), _ADVICE[self._address == LOCAL])
            self._started = True
            # Registered after Ray's own hook and so called before it: workers end while the cluster exists.
            atexit.register(self.close)
        return self._guard


class RayWorker:
    """A `WorkerHandle` of an actor."""

    def __init__(
        self, ray: Any, actor: Any, watch: Callable[[int], None], cpus: float, lost: Callable[[str], None]
    ) -> None:
        self._ray, self._actor, self._cpus, self._lost = ray, actor, cpus, lost
        self.heartbeat = Pulse(ray, actor, watch)
        self.channel = RayChannel(ray, actor, self.heartbeat)
        self.shares: Callable[[], bool] | None = None
        self._looked = time.monotonic()
        self._ended = actor.ended.options(concurrency_group="end").remote()

    @property
    def kind(self) -> str:
        return "actor" if self.shares is None else "actor (shares a CPU)"

    def has_better_place(self) -> bool:
        if self.shares is None or time.monotonic() - self._looked < _LOOK:
            return False
        self._looked = time.monotonic()
        return not self.shares()

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

    @property
    def clock_error(self) -> float:
        return 0.0 if self.heartbeat.node in ("", platform.node()) else self.heartbeat.clock_error

    def hindrance(self) -> str | None:
        if self.node or is_placed(self._ray, self._actor):
            return None
        return f"waits for a place: {wanted_place(self._ray, self._cpus)}"

    def join(self, timeout: float) -> str | None:
        if not self._ray.is_initialized():
            return "ended with its cluster"
        ready, _ = self._ray.wait([self._ended], timeout=timeout)
        if not ready:
            return None
        try:
            return str(self._ray.get(self._ended))
        except self._ray.exceptions.RayError as error:
            self._lost(self.heartbeat.machine)
            return f"ended: {str(error).splitlines()[0].rstrip('.')}"

    def kill(self) -> None:
        self.channel.close()
        if self._ray.is_initialized():
            if not self._ray.wait([self._ended], timeout=0)[0]:
                self._lost(self.heartbeat.machine)
            self._ray.kill(self._actor, no_restart=True)

    def close(self) -> None:
        self.kill()


class Pulse:
    """A `Heartbeat` of an actor: calls it and counts its answers.

    Attributes:
      offset: difference, in seconds, that converts its clock to this process's clock; 0 if it is smaller than its
        error, half of the shortest round trip so far. Clocks drift apart, so a longer round trip counts once the
        shortest is old.
    """

    def __init__(self, ray: Any, actor: Any, watch: Callable[[int], None] = lambda pid: None) -> None:
        self._ray, self._actor, self._watch = ray, actor, watch
        self._beats, self._member = 0, STARTING
        self.pid, self.node, self.machine, self.offset = 0, "", "", 0.0
        self._error, self._measured = float("inf"), 0.0
        self._sent, self._answer = 0.0, None
        self._deadline = 0.0
        self._ask()

    @property
    def beats(self) -> int:
        self.look()
        return self._beats

    @property
    def member(self) -> int:
        """The value that `expect` asked for, if it has arrived in time, else the last one."""
        self.look(max(0.0, self._deadline - time.monotonic()))
        return self._member

    @member.setter
    def member(self, number: int) -> None:
        raise AttributeError("the worker sets it")

    @property
    def clock_error(self) -> float:
        """The error of `offset` in seconds."""
        return self._error + _DRIFT * (time.monotonic() - self._measured)

    def expect(self, deadline: float) -> None:
        self.look()
        self._deadline = deadline
        if self._answer is None and self._ray.is_initialized():
            self._ask()

    def look(self, timeout: float = 0.0) -> None:
        """Receives an answer if one arrives within `timeout` seconds, and calls again after a while."""
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

    def _take(self, beat: tuple[float, int, int, str, str]) -> None:
        now = time.monotonic()
        clock, self._member, self.pid, self.node, self.machine = beat
        self._beats += 1
        if self._beats == 1:
            self._watch(self.pid)
        error = (now - self._sent) / 2
        if error < self.clock_error:
            self._error, self._measured = error, now
            offset = (now + self._sent) / 2 - clock
            self.offset = offset if abs(offset) > error else 0.0


class RayChannel:
    """A `Channel` to an actor. The first message has no answer; each later one is a call whose value is its answer."""

    def __init__(self, ray: Any, actor: Any, pulse: Pulse) -> None:
        self._ray, self._actor, self._pulse = ray, actor, pulse
        self._answers: collections.deque[Any] = collections.deque()
        self._begun = self._closed = False
        self.place: Any = None

    def send(self, message: Any, place: Any = None) -> None:
        if self._closed or not self._ray.is_initialized():
            raise ChannelClosed("the other end is closed")
        if message is None:
            self._ray.run(self._actor.end.remote)
            return
        header, buffers = serialize(message)
        # The call copies the buffers.
        parts = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        with _store_has_room(self._ray):
            if self._begun:
                places = place or ()
                self._answers.append(self._ray.run(self._actor.call.remote, len(places), header, *places, *parts))
            else:
                self._begun = True
                self._ray.run(self._actor.begin.remote, header, *parts)

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
        if self._ray.is_initialized():
            self._answers.clear()


@contextlib.contextmanager
def _store_has_room(ray: Any) -> Iterator[None]:
    """Turns Ray's error for a full object store into a LaneError that says what to do."""
    try:
        yield
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise LaneError(
            "Ray's object store is full, and so is the disk that it moves objects to: start the cluster with a larger "
            "one (`ray start --object-store-memory=BYTES`), or lower policy.collect.n_sample or lanes.max_staleness"
        ) from error


class RayStore(CopiedWeights):
    """A `WeightStore` whose arrays are in Ray's object store, once each, while a version that contains them is in use.

    The changed arrays of a version form one object. The place of a version is the list of objects that hold its arrays;
    if several objects hold an array, the last one counts.
    """

    def __init__(self, ray: Any, arrays: Mapping[str, Array], slots: int) -> None:
        super().__init__(arrays, slots)
        self.ray = ray
        # For each version its objects, with the names of the arrays that it takes from each.
        self._objects: dict[int, list[tuple[Any, frozenset[str]]]] = {}

    def publish(self, arrays: Mapping[str, Array]) -> int:
        before, earlier = self._versions.get(self.version, {}), self._objects.get(self.version, [])
        version = super().publish(arrays)
        if version not in self._objects:
            now = self._versions[version]
            new = {name: array for name, array in now.items() if array is not before.get(name)}
            with _store_has_room(self.ray):
                fresh = self.ray.put(new)
            left = [(placed, names - new.keys()) for placed, names in earlier]
            self._objects[version] = [entry for entry in left if entry[1]] + [(fresh, frozenset(new))]
        # An object is released with the last reference to it.
        self._objects = {held: objects for held, objects in self._objects.items() if held in self._versions}
        return version

    def retain(self) -> Snapshot:
        version = super().retain().version
        return Snapshot(version, tuple(placed for placed, _ in self._objects[version]))

    def close(self) -> None:
        if self.ray.is_initialized():
            super().close()
            self._objects.clear()
