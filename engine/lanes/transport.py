"""Transports: where workers run, how messages and weights reach them, and how their end is noticed.

Everything in lanes is written against these protocols. `engine.lanes.processes` implements them with processes of this
machine and shared memory, `engine.lanes.threads` with threads of this process, and `engine.lanes.ray` with actors of a
cluster. Only messages, weights and signs of life pass between the two sides. The first message brings a worker its
instructions, as bytes (`engine.lanes.worker.serve`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from minding.engine.lanes.inference.port import Port
from minding.engine.types import Array

STARTING, BETWEEN = -2, -1
"""Activities of a worker outside of its members."""


class ChannelClosed(Exception):
    """The other end has gone."""


class Channel(Protocol):
    """One end of a connection between two lanes. Messages arrive whole, in order, or not at all.

    Attributes:
      place: place of the weights that the last received message refers to, as its sender gave it.
    """

    @property
    def place(self) -> Any: ...

    def send(self, message: Any, place: Any = None) -> None:
        """Sends a copy of `message`.

        Args:
          message: any object that can be pickled.
          place: place of the `Snapshot` that the message refers to. It is not pickled with the message, so that a
            transport may count its users, or send the arrays themselves.
        Raises:
          ChannelClosed: the other end is closed.
          Exception: the error of pickling; nothing was sent then.
        """
        ...

    def receive(self, timeout: float | None = None) -> Any:
        """Returns the next message, which the receiver then owns.

        Args:
          timeout: seconds to wait; None waits forever.
        Raises:
          TimeoutError: nothing arrived in time.
          ChannelClosed: nothing more will arrive.
        """
        ...

    def close(self) -> None:
        """Closes this end. Earlier messages still arrive at the other one."""
        ...


class Heartbeat(Protocol):
    """Signs of life of a worker: it writes them, the main process reads them.

    Attributes:
      member: number of the member that is running; `STARTING` before the worker is built, `BETWEEN` when none is.
    """

    member: int

    @property
    def beats(self) -> int:
        """The number of signs of life so far, read in the main process; 0 before the first."""
        ...


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A published version of the weights, in the form in which a request names it.

    Attributes:
      version: number of the version, counted from 0.
      place: its location; only the board that made it and its readers can use it.
    """

    version: int
    place: Any


class WeightReader(Protocol):
    """A worker's view of a board."""

    def empty(self) -> dict[str, Array]:
        """Returns arrays of the right shapes for `read`."""
        ...

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        """Copies a whole version into `arrays`.

        Raises:
          LaneError: the version is no longer stored, because it was released too early.
        """
        ...


class WeightBoard(WeightReader, Protocol):
    """Versions of a set of named arrays. The learner publishes; a version does not change until it is released.

    A released version can still be read until the next `publish`.
    """

    @property
    def version(self) -> int:
        """The newest version published, -1 before the first."""
        ...

    def publish(self, arrays: Mapping[str, Array]) -> int:
        """Copies `arrays` in as a new version, unless they equal the newest bit by bit; returns the newest version.

        Raises:
          LaneError: too many versions are retained.
        """
        ...

    def retain(self) -> Snapshot:
        """Reserves the newest version for one reader, until it is passed to `release`."""
        ...

    def release(self, snapshot: Snapshot) -> None:
        """Releases a version that `retain` reserved."""
        ...


class WorkerHandle(Protocol):
    """A running or ended worker as seen from the main process."""

    @property
    def kind(self) -> str:
        """Its kind, for messages: ``process``, ``thread`` or ``actor``."""
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
      room: number of collectors that can have their own processor cores, besides the learner and an evaluator.
    """

    @property
    def own_process(self) -> bool: ...

    @property
    def increments(self) -> bool: ...

    @property
    def cores(self) -> Sequence[int]: ...

    @property
    def room(self) -> int: ...

    def board(self, arrays: Mapping[str, Array], slots: int) -> WeightBoard:
        """Returns a new board for weights.

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
        self, name: str, board: WeightBoard, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> WorkerHandle:
        """Starts a worker that runs `engine.lanes.worker.serve`.

        Args:
          name: name of the worker, for messages and lists of processes.
          board: a board of this transport; the worker gets a reader of it.
          depth: maximum number of messages with arrays that wait in each direction.
          cores: processor cores to which the worker is pinned; empty for all.
          port: a port of this transport at which other workers find this one; None if they do not ask it.
        """
        ...

    def close(self) -> None:
        """Ends the transport's own processes after all workers have ended; the next `start` starts them again."""
        ...
