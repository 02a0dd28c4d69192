"""The worker that computes for all collectors."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from minding.engine.lanes.inference.batching import Ask, Batching, divided, joined
from minding.engine.lanes.inference.port import Counter, Port
from minding.engine.lanes.messages import Answer, Request
from minding.engine.lanes.pickled import PickledMembers
from minding.engine.lanes.transport import BETWEEN, Channel, ChannelClosed, Heartbeat, Snapshot, WeightReader
from minding.engine.lanes.worker_task import WorkerTask
from minding.engine.process.floats import flush_denormals
from minding.engine.types import LaneContext, StateDict

_IDLE = 0.02  # s, for which it waits for questions before it looks for messages of the main process


@dataclasses.dataclass(frozen=True)
class ServerPlan:
    """The instructions with which a server starts.

    Attributes:
      members: the members of the collectors, whose networks it rebuilds.
      port: address at which collectors find it.
      max_batch, max_wait: see `Batching`; in rows and seconds.
      depth: number of versions of the weights that are in use at the same time.
      own_process: whether the server has its own process.
    """

    members: PickledMembers
    port: Port
    max_batch: int
    max_wait: float
    depth: int
    own_process: bool
    lane = "inference"
    names = ("a batch",)

    def build(self, weights: WeightReader, heartbeat: Heartbeat, task: WorkerTask) -> InferenceServer:
        """Builds the server; called in the worker."""
        return InferenceServer(self, weights, heartbeat)


class InferenceServer:
    """Answers the questions of collectors, in batches.

    The main process announces each version of the weights to the server before it announces it to a collector, together
    with the oldest version that a collector still uses. It retains all versions since then, and announces them to the
    replacement of a server that died.

    Args:
      plan: instructions of the server.
      weights: reader of the board with the weights.
      heartbeat: gets the current activity.
    """

    def __init__(self, plan: ServerPlan, weights: WeightReader, heartbeat: Heartbeat) -> None:
        self._plan, self._weights, self._heartbeat = plan, weights, heartbeat
        self._lane = LaneContext(0, weights.empty(), plan.own_process)
        self._networks = plan.members.networks(self._lane)
        self._batching = Batching(plan.max_batch, plan.max_wait)
        self._versions: dict[int, Snapshot] = {}
        self._loaded = -1
        self._ending = False
        heartbeat.member = BETWEEN

    def load_state_dict(self, state: StateDict) -> None:
        """Does nothing: the server has no state."""

    def run(self, channel: Channel) -> None:
        """Serves until the main process has asked for the end and no collector is connected."""
        counter = self._plan.port.listen()
        try:
            while not self._ending or counter.askers:
                self._look(channel)
                self._serve(counter, channel)
        finally:
            counter.close()

    def close(self) -> None:
        """Does nothing: the server holds nothing to close."""

    def _look(self, channel: Channel, timeout: float = 0.0) -> None:
        """Receives the messages of the main process."""
        while not self._ending:
            try:
                request: Request | None = channel.receive(timeout)
            except TimeoutError:
                return
            if request is None:
                self._ending = True
                return
            self._versions[request.version] = Snapshot(request.version, channel.place)
            for version in [version for version in self._versions if version < request.fields["oldest"]]:
                del self._versions[version]
            channel.send(Answer(request.number, {}, {"members": {}, "acting": []}, [], False, []))
            timeout = 0.0

    def _serve(self, counter: Counter, channel: Channel) -> None:
        """Waits a while for questions, and computes the batches that are due."""
        patience = self._batching.patience(time.monotonic())
        for question, reply in counter.receive(_IDLE if patience is None else min(max(patience, 0.0), _IDLE)):
            self._batching.add(Ask(*question, reply, time.monotonic()))
        while batch := self._batching.due(time.monotonic(), counter.askers):
            self._heartbeat.member = 0
            self._compute(batch, channel)
            self._heartbeat.member = BETWEEN

    def _compute(self, batch: list[Ask], channel: Channel) -> None:
        self._load(batch[0].version, channel)
        network, shared = self._networks[batch[0].place]
        outputs = _computed(network, joined(batch))
        for ask, answer in zip(batch, divided(outputs, batch, shared)):
            ask.asker(answer)

    def _load(self, version: int, channel: Channel) -> None:
        if version == self._loaded:
            return
        while version not in self._versions:
            # The version is on its way if this server replaces one that died.
            self._look(channel, _IDLE)
            if self._ending:
                raise ChannelClosed("the run has ended")
        self._weights.read(self._versions[version], self._lane.weights)
        self._loaded = version
        for refreshed in self._lane.on_refresh:
            refreshed()


@flush_denormals
def _computed(network: Any, leaves: Any) -> Any:
    return network(leaves)
