"""Transports: where workers run, how messages and weights reach them, and how their end shows.

Everything in lanes is written against these protocols. `engine.lanes.processes` implements them with processes of this
machine and shared memory, `engine.lanes.threads` with threads of this process, and `engine.lanes.ray` with actors of a
cluster. Nothing passes between the two sides but messages, weights and signs of life: what a worker is arrives as
bytes, in the first message (`engine.lanes.worker.serve`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from minding.engine.lanes.inference.port import Port
from minding.engine.types import Array

STARTING, BETWEEN = -2, -1
"""What a worker does, where it is in none of its members."""


class ChannelClosed(Exception):
    """The other end has gone."""


class Channel(Protocol):
    """One end of a connection between two lanes. Messages arrive whole, in order, or not at all.

    Attributes:
      place: where the weights are that the message last received is about, as it was sent.
    """

    @property
    def place(self) -> Any: ...

    def send(self, message: Any, place: Any = None) -> None:
        """Sends a copy of `message`.

        Args:
          message: anything that can be pickled.
          place: of a `Snapshot` that the message is about. It travels beside what is pickled, so that a transport may
            count who still uses it, or send what is there in its place.
        Raises:
          ChannelClosed: the other end is closed.
          Exception: what pickling raises; nothing was sent then.
        """
        ...

    def receive(self, timeout: float | None = None) -> Any:
        """Returns the next message, which the receiver then owns.

        Args:
          timeout: seconds to wait; None waits for ever.
        Raises:
          TimeoutError: nothing arrived in time.
          ChannelClosed: nothing more will arrive.
        """
        ...

    def close(self) -> None:
        """Closes this end. What was sent before still arrives at the other one."""
        ...


class Heartbeat(Protocol):
    """Signs of life of a worker: it writes them, the main process reads them.

    Attributes:
      member: number of the member that is running; `STARTING` before the worker is built, `BETWEEN` when none is.
    """

    member: int

    @property
    def beats(self) -> int:
        """Read in the main process: grows as long as the worker lives; 0 before its first sign of life."""
        ...


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A published version of the weights, as a request tells a worker of it.

    Attributes:
      version: counted from 0.
      place: where it is kept; for the board that made it and its readers.
    """

    version: int
    place: Any


class WeightReader(Protocol):
    """A worker's view of a board."""

    def empty(self) -> dict[str, Array]:
        """Returns arrays of the right shapes to `read` into."""
        ...

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        """Copies a version out, whole.

        Raises:
          LaneError: the version is no longer stored, because it was released too early.
        """
        ...


class WeightBoard(WeightReader, Protocol):
    """Versions of a set of named arrays. The learner publishes; a version stays as it is until it is released.

    Once released, it can be read until the next `publish`.
    """

    @property
    def version(self) -> int:
        """The newest version published, -1 before the first."""
        ...

    def publish(self, arrays: Mapping[str, Array]) -> int:
        """Copies `arrays` in as a new version, unless they equal the newest bit by bit; returns the newest version.

        Raises:
          LaneError: more versions are retained than there is room for.
        """
        ...

    def retain(self) -> Snapshot:
        """Reserves the newest version for one reader, until it is passed to `release`."""
        ...

    def release(self, snapshot: Snapshot) -> None:
        """Ends what `retain` began."""
        ...


class WorkerHandle(Protocol):
    """A worker that runs, or did, as the main process holds it."""

    @property
    def kind(self) -> str:
        """Its kind, for messages: ``process``, ``thread``."""
        ...

    @property
    def where(self) -> str:
        """Where it runs, for messages: ``process 4711``."""
        ...

    @property
    def node(self) -> str:
        """Name of the machine that it runs on; empty as long as it has none."""
        ...

    @property
    def pid(self) -> int | None:
        """Of its own process there; None if it has none."""
        ...

    @property
    def clock_error(self) -> float:
        """Seconds by which its spans may be off, as told in the time of this machine; 0 where both have one clock."""
        ...

    @property
    def channel(self) -> Channel:
        """To the worker; it is closed by the worker's end, however that came."""
        ...

    @property
    def heartbeat(self) -> Heartbeat:
        """Its signs of life. A worker may have died without closing its channel: it is then silent."""
        ...

    def hindrance(self) -> str | None:
        """The known reason that keeps it from running, with a remedy; None if there is none."""
        ...

    def join(self, timeout: float) -> str | None:
        """Waits for its end; returns how it ended, such as ``ended with exit code 1``, or None if it still runs."""
        ...

    def kill(self) -> None:
        """Ends it by force, as far as that is possible; nothing that it sends arrives afterwards."""
        ...

    def close(self) -> None:
        """Releases what it held, once it has ended or was killed."""
        ...


class Transport(Protocol):
    """Starts workers and publishes weights to them.

    Attributes:
      own_process: whether each worker has a process to itself, in which it may load MindSpore.
      increments: whether bytes are dear, so that of a worker's large state only what is new is sent.
      cores: numbers of the processor cores that lanes can be kept on; empty where they cannot.
      room: how many collectors find processor cores of their own, besides the learner and an evaluator.
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
        """Makes room for weights.

        Args:
          arrays: name to array; gives shapes and dtypes.
          slots: versions that are held at the same time, with the one that is written.
        """
        ...

    def inspect(self, workers: int) -> tuple[str, ...]:
        """Looks at the machines on which workers will run, before the first is started.

        Args:
          workers: how many there will be.
        Returns:
          The kinds of processor; none where all is on this machine.
        Raises:
          ConfigError: they cannot run all of the workers.
          LaneError: one does not answer.
        """
        ...

    def port(self, askers: int) -> Port:
        """Makes a port at which workers find the worker that computes for them.

        Args:
          askers: how many workers ask.
        """
        ...

    def start(
        self, name: str, board: WeightBoard, depth: int, cores: frozenset[int], port: Port | None = None
    ) -> WorkerHandle:
        """Starts a worker that runs `engine.lanes.worker.serve`.

        Args:
          name: of the worker, for messages and lists of processes.
          board: made by this transport; the worker gets a reader of it.
          depth: messages with arrays that may wait in each direction.
          cores: processor cores to stay on; empty for all.
          port: made by this transport, where other workers find this one; None: they do not ask it.
        """
        ...

    def close(self) -> None:
        """Ends what it runs itself, once all workers have ended; `start` begins it again."""
        ...
