"""An inference server as seen from the main process."""

from __future__ import annotations

import collections
from collections.abc import Callable

from minding.engine.lanes.heartbeat import Wait
from minding.engine.lanes.inference.port import Port
from minding.engine.lanes.inference.server import ServerPlan
from minding.engine.lanes.messages import Request
from minding.engine.lanes.options import LaneOptions
from minding.engine.lanes.pickled import PickledMembers
from minding.engine.lanes.supervised import SupervisedWorker, Ticket
from minding.engine.lanes.transport import Transport, WeightBoard


class InferenceService:
    """Announces versions of the weights to a server while collectors use them, and replaces the server if it dies.

    Attributes:
      worker: the server.
      port: address at which collectors find it.

    Args:
      options: settings of the run, all filled in.
      transport: starts the server.
    """

    def __init__(self, options: LaneOptions, transport: Transport) -> None:
        assert options.timeout is not None
        self.port: Port = transport.port(options.collectors or 1)
        self.worker = SupervisedWorker(
            "inference server", transport, options.timeout, options.start_timeout, port=self.port
        )
        self._options, self._transport = options, transport
        self._board: WeightBoard
        self._held: collections.deque[int] = collections.deque()
        self._wait = Wait()

    def prepare(self, members: PickledMembers, board: WeightBoard, depth: int) -> None:
        """Sets the networks that the server computes.

        Args:
          members: members of the collectors.
          board: board with their weights.
          depth: number of versions of these that are in use at the same time.
        """
        plan = ServerPlan(
            members,
            self.port,
            self._options.max_batch,
            self._options.max_wait_ms / 1000.0,
            depth,
            self._transport.own_process,
        )
        self._board = board
        self.worker.prepare(plan, board, frozenset())

    def offer(self, oldest: int | None) -> None:
        """Announces the newest version to the server, before a collector hears of it.

        Args:
          oldest: oldest version that a collector still uses; None if none is at work.
        """
        if not self.worker.started:
            self._held.clear()
            self.port.open()
        version = self._board.version
        if self._held and self._held[-1] == version:
            return
        fields = {"oldest": version if oldest is None else oldest}
        self._held.append(version)
        self.worker.submit(Ticket(Request(version, version, fields), self._board.retain()))

    def release(self, oldest: int | None, interrupted: Callable[[], bool]) -> None:
        """Releases the versions that no collector uses any more, apart from the newest.

        Args:
          oldest: as in `offer`.
          interrupted: see `SupervisedWorker.wait`, also for the errors that are raised.
        """
        while len(self._held) > 1 and self.worker.started and (oldest is None or self._held[0] < oldest):
            self.worker.wait(interrupted)
            self.worker.poll()
            self._held.popleft()

    def close_port(self) -> None:
        """Closes the port if the server has ended, so that collectors do not wait for another one."""
        if not self.worker.lives:
            self.port.close()

    def await_others(self) -> None:
        """Begins a wait for collectors, which may themselves wait for the server; call `tend` during the wait."""
        self._wait = Wait()

    def tend(self) -> None:
        """Replaces the server if it has died or is silent; raises the errors of `SupervisedWorker.tend`."""
        self.worker.tend(self._wait)
