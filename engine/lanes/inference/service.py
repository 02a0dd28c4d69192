"""An inference server as the main process holds it."""

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
    """Tells a server of versions of the weights, as long as collectors use them, and replaces it if it dies.

    Attributes:
      worker: the server.
      port: where collectors find it.

    Args:
      options: settings of the run, of which none is open.
      transport: starts it.
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
        """Sets the networks that it computes.

        Args:
          members: of the collectors.
          board: where their weights are.
          depth: versions of these that are in use at the same time.
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
        """Tells it of the newest version, before a collector is told of it.

        Args:
          oldest: version that a collector still works with; None if they do not work.
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
        """Releases the versions that no collector uses any more, but for the newest.

        Args:
          oldest: as in `offer`.
          interrupted: see `SupervisedWorker.wait`, also for what is raised.
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
        """Begins to wait for collectors, which may wait for the server; call `tend` meanwhile."""
        self._wait = Wait()

    def tend(self) -> None:
        """Replaces the server if it has died or is silent; see `SupervisedWorker.tend` for what is raised."""
        self.worker.tend(self._wait)
