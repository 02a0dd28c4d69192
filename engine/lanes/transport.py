"""Transports: where workers run, how messages and weights reach them, and how their end is noticed.

Everything in lanes is written against the protocols and messages of this module. `engine.lanes.processes` implements
the protocols with processes of this machine and shared memory, `engine.lanes.threads` with threads of this process, and
`engine.lanes.ray` with actors of a cluster. Only messages, weights and signs of life pass between the two sides. The
first message brings a worker its instructions, as bytes (`engine.lanes.worker.serve`).
"""

import dataclasses
import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import cloudpickle
import numpy as np

from minding.engine.chain.trace import Span
from minding.engine.types import Array, StateDict

STARTING, BETWEEN = -2, -1
"""Activities of a worker outside of its members."""


# Messages


@dataclasses.dataclass(frozen=True)
class Request:
    """One iteration's work for a worker."""

    number: int
    version: int
    fields: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of a request."""

    number: int
    fields: dict[str, Any]
    state: StateDict
    spans: list[Span]
    finish: bool
    events: list[bytes]


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception that ended a worker."""

    error: Exception
    text: str


def serialize(message: Any) -> tuple[bytes, list[memoryview]]:
    """Pickles a message (protocol 5); `pickle.loads(header, buffers=copies)` rebuilds it from copies."""
    buffers: list[pickle.PickleBuffer] = []
    header = io.BytesIO()
    _Pickler(header, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(message)
    return header.getvalue(), [buffer.raw() for buffer in buffers]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles classes of the user's script, which a worker does not have, by value."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is np.ndarray and not (thing.flags.forc or thing.dtype.hasobject):
            # NumPy leaves only contiguous arrays out of the header.
            return np.ascontiguousarray(thing).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(thing)


# Workers and their weights


class ChannelClosed(Exception):
    """The other end has gone."""


class Channel(Protocol):
    """One end of a connection between two lanes. Messages arrive whole, in order, or not at all."""

    @property
    def place(self) -> Any: ...

    def send(self, message: Any, place: Any = None) -> None:
        """Sends a copy of `message`."""
        ...

    def receive(self, timeout: float | None = None) -> Any:
        """Returns the next message, which the receiver then owns; waits for `timeout` seconds, or forever if None."""
        ...

    def close(self) -> None:
        """Closes this end. Earlier messages still arrive at the other one."""
        ...


class Heartbeat(Protocol):
    """Signs of life of a worker: it writes them, the main process reads them."""

    member: int

    @property
    def beats(self) -> int:
        """The number of signs of life so far, read in the main process; 0 before the first."""
        ...

    def expect(self, deadline: float) -> None:
        """Begins to ask for the present `member`, which waits for the answer until `deadline`, a `time.monotonic`."""
        ...


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A published version of the weights, in the form in which a request names it."""

    version: int
    place: Any


class WeightReader(Protocol):
    """A worker's view of a store."""

    def empty(self) -> dict[str, Array]:
        """Returns arrays of the right shapes for `read`."""
        ...

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        """Copies a whole version into `arrays`."""
        ...


class WeightStore(WeightReader, Protocol):
    """Versions of a set of named arrays. The learner publishes; a version does not change until it is released.

    A released version can still be read until the next `publish`.
    """

    @property
    def version(self) -> int:
        """The newest version published, -1 before the first."""
        ...

    def publish(self, arrays: Mapping[str, Array]) -> int:
        """Copies `arrays` in as a new version, unless they equal the newest bit by bit; returns the newest
        version."""
        ...

    def retain(self) -> Snapshot:
        """Reserves the newest version for one reader, until it is passed to `release`."""
        ...

    def release(self, snapshot: Snapshot) -> None:
        """Releases a version that `retain` reserved."""
        ...

    def close(self) -> None:
        """Frees the memory of all versions, after all readers have ended; nothing is published afterwards."""
        ...


# Inference servers


class Question(NamedTuple):
    """A collector's request for the outputs of a network."""

    place: int
    version: int
    leaves: Sequence[Array]


Reply = Callable[[tuple[Array, ...]], None]
"""Sends outputs to the collector that asked; has no effect if the collector has ended."""


class Line(Protocol):
    """A collector's end."""

    def ask(self, question: Question) -> tuple[Array, ...]:
        """Returns the outputs of a network, which the caller then owns. Waits for a server if there is none, and asks
        again if it dies; the main process decides when to give up."""
        ...

    def close(self) -> None:
        """Tells the server that there will be no further question."""
        ...


class Counter(Protocol):
    """The server's end."""

    @property
    def askers(self) -> int:
        """The number of collectors that are connected."""
        ...

    def receive(self, timeout: float) -> list[tuple[Question, Reply]]:
        """The questions that have arrived; waits up to `timeout` seconds for the first."""
        ...

    def close(self) -> None: ...


class Port(Protocol):
    """The address of a server, made by the transport; all workers receive it."""

    def open(self) -> None:
        """Called in the main process before a server starts."""
        ...

    def close(self) -> None:
        """Called in the main process when there will be no server until the next `open`."""
        ...

    def connect(self, asker: int) -> Line:
        """Returns the collector's end; called in the collector."""
        ...

    def listen(self) -> Counter:
        """Returns the server's end; called in the server."""
        ...


# Transports


class WorkerHandle(Protocol):
    """A running or ended worker as seen from the main process."""

    @property
    def kind(self) -> str:
        """Its kind, for messages: ``process``, ``thread`` or ``actor``, and what is special about it."""
        ...

    @property
    def where(self) -> str:
        """Its location, for messages: ``process 4711``."""
        ...

    @property
    def node(self) -> str:
        """Name of its machine; empty before it has been placed on one."""
        ...

    @property
    def pid(self) -> int | None:
        """Id of its process on that machine; None if it has no process of its own."""
        ...

    @property
    def clock_error(self) -> float:
        """Error of its spans in seconds, after conversion to the clock of this machine; 0 if both share a clock."""
        ...

    @property
    def channel(self) -> Channel:
        """The channel to the worker; it closes when the worker ends, for whatever reason."""
        ...

    @property
    def heartbeat(self) -> Heartbeat:
        """Its signs of life. A worker that died without closing its channel is silent."""
        ...

    def hindrance(self) -> str | None:
        """The known obstacle that keeps it from running, with a remedy; None if there is none."""
        ...

    def has_better_place(self) -> bool:
        """Whether another worker in its place would run faster."""
        ...

    def join(self, timeout: float) -> str | None:
        """Waits for its end; returns a description such as ``ended with exit code 1``, or None if it still runs."""
        ...

    def kill(self) -> None:
        """Ends it by force, as far as that is possible; none of its messages arrive afterwards."""
        ...

    def close(self) -> None:
        """Releases its resources, after it has ended or was killed."""
        ...


class Transport(Protocol):
    """Starts workers and publishes weights to them.

    Attributes:
      own_process: whether each worker has its own process, in which it may load MindSpore.
      increments: whether only the changes of large states are sent, because bytes are expensive.
      cores: numbers of the processor cores to which lanes can be pinned; empty if they cannot.
      max_collectors: number of collectors with processor cores of their own, besides the learner and an evaluator.
    """

    @property
    def own_process(self) -> bool: ...

    @property
    def increments(self) -> bool: ...

    @property
    def cores(self) -> Sequence[int]: ...

    @property
    def max_collectors(self) -> int: ...

    def store(self, arrays: Mapping[str, Array], slots: int) -> WeightStore:
        """Returns a new store for weights.

        Args:
          arrays: name to array; gives shapes and dtypes.
          slots: number of versions that are held at the same time, including the one that is being written.
        """
        ...

    def inspect(self, workers: int) -> tuple[str, ...]:
        """Inspects the machines of the workers before the first is started.

        Args:
          workers: number of workers.
        Returns:
          The kinds of processor; empty if all workers run on this machine.
        Raises:
          ConfigError: the machines cannot run all workers.
          LaneError: a machine does not answer.
        """
        ...

    def port(self, askers: int) -> Port:
        """Returns a port at which workers find their inference server.

        Args:
          askers: number of workers that ask.
        """
        ...

    def start(
        self, name: str, store: WeightStore, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> WorkerHandle:
        """Starts a worker that runs `engine.lanes.worker.serve`.

        Args:
          name: name of the worker, for messages and lists of processes.
          store: a store of this transport; the worker gets a reader of it.
          depth: maximum number of messages with arrays that wait in each direction.
          cores: processor cores to which the worker is pinned; empty for all.
          port: a port of this transport at which other workers find this one; None if they do not ask it.
        """
        ...

    def close(self) -> None:
        """Ends the transport's own processes after all workers have ended; the next `start` starts them again."""
        ...
