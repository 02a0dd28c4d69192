"""Acting through an inference server: collectors send observations, and one worker computes for all of them.

A collector keeps its environments, its random stream and the memory of its policy; only the network is elsewhere
(`engine.lanes.worker.RemoteNetworks`). The server therefore has no state but weights: batches change no random draw,
and a server that died is replaced without loss. It computes questions in batches (`Batching`) with the version of the
weights that the collector's request names, as the collector itself would. The main process sees it as an
`InferenceService`.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minding.engine.lanes.options import LaneOptions
from minding.engine.lanes.shipping import PickledMembers
from minding.engine.lanes.supervised import SupervisedWorker, Ticket, Wait
from minding.engine.lanes.transport import (
    BETWEEN,
    Answer,
    Channel,
    ChannelClosed,
    Counter,
    Heartbeat,
    Port,
    Request,
    Snapshot,
    Transport,
    WeightReader,
    WeightStore,
)
from minding.engine.lanes.worker_task import WorkerTask
from minding.engine.process.floats import flush_denormals
from minding.engine.types import Array, LaneContext, StateDict

_IDLE = 0.02  # s, for which the server waits for questions before it looks for messages of the main process


@dataclasses.dataclass(frozen=True, eq=False)
class Ask:
    """Observations of a collector that wait for the outputs of a network.

    Attributes:
      leaves: inputs of the network, ``(n, ...)`` each.
      since: time of arrival, in seconds.
    """

    place: int
    version: int
    leaves: Sequence[Array]
    asker: Any
    since: float

    @property
    def rows(self) -> int:
        """n."""
        return len(self.leaves[0])

    @property
    def kind(self) -> tuple[Any, ...]:
        """Only questions of the same kind can be computed together."""
        return self.place, self.version, *((leaf.shape[1:], leaf.dtype) for leaf in self.leaves)


class Batching:
    """Collects questions until there is a reason to compute them.

    Args:
      max_wait: maximum time, in seconds, for which the first question of a batch waits for others.
    """

    def __init__(self, max_batch: int, max_wait: float) -> None:
        self._max_batch, self._max_wait = max_batch, max_wait
        self._waiting: list[Ask] = []

    def add(self, ask: Ask) -> None:
        self._waiting.append(ask)

    def due(self, now: float, askers: int) -> list[Ask]:
        """The questions to compute together now, the oldest first; empty if it is better to wait: until `max_batch`
        rows have arrived, the oldest question is `max_wait` old (`now`: the time in seconds), or every collector has
        asked."""
        if not self._waiting:
            return []
        oldest = self._waiting[0]
        batch, rows, full = [oldest], oldest.rows, oldest.rows >= self._max_batch
        for ask in self._waiting[1:]:
            if ask.kind != oldest.kind:
                continue
            if rows + ask.rows > self._max_batch:
                full = True
                break
            batch.append(ask)
            rows += ask.rows
        late = now >= oldest.since + self._max_wait
        if not (full or late or rows == self._max_batch or len(self._waiting) >= askers):
            return []
        taken = {id(ask) for ask in batch}
        self._waiting = [ask for ask in self._waiting if id(ask) not in taken]
        return batch

    def patience(self, now: float) -> float | None:
        """Seconds until the oldest question has waited long enough; None if there is none."""
        return self._waiting[0].since + self._max_wait - now if self._waiting else None


def joined(batch: Sequence[Ask]) -> list[Array]:
    """The leaves of all questions of a batch, concatenated along the first axis."""
    if len(batch) == 1:
        return list(batch[0].leaves)
    return [np.concatenate(leaves) for leaves in zip(*(ask.leaves for ask in batch))]


def divided(outputs: Sequence[Array], batch: Sequence[Ask], shared: frozenset[int]) -> list[tuple[Array, ...]]:
    """The rows of a batch's outputs, ``(B, ...)`` each apart from those in `shared`, that answer each question."""
    answers, start = [], 0
    for ask in batch:
        stop = start + ask.rows
        answers.append(tuple(x if k in shared else x[start:stop] for k, x in enumerate(outputs)))
        start = stop
    return answers


@dataclasses.dataclass(frozen=True)
class ServerPlan:
    """The instructions with which a server starts.

    Attributes:
      max_batch, max_wait: see `Batching`; in rows and seconds.
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


class InferenceService:
    """Announces versions of the weights to a server while collectors use them, and replaces the server if it
    dies."""

    def __init__(self, options: LaneOptions, transport: Transport) -> None:
        assert options.timeout is not None
        self.port: Port = transport.port(options.collectors or 1)
        self.worker = SupervisedWorker(
            "inference server", transport, options.timeout, options.start_timeout, port=self.port
        )
        self._options, self._transport = options, transport
        self._store: WeightStore
        self._held: collections.deque[int] = collections.deque()
        self._wait = Wait()

    def prepare(self, members: PickledMembers, store: WeightStore, depth: int) -> None:
        """Sets the networks that the server computes."""
        plan = ServerPlan(
            members,
            self.port,
            self._options.max_batch,
            self._options.max_wait_ms / 1000.0,
            depth,
            self._transport.own_process,
        )
        self._store = store
        self.worker.prepare(plan, store, frozenset())

    def offer(self, oldest: int | None) -> None:
        """Announces the newest version to the server, before a collector hears of it."""
        if not self.worker.started:
            self._held.clear()
            self.port.open()
        version = self._store.version
        if self._held and self._held[-1] == version:
            return
        fields = {"oldest": version if oldest is None else oldest}
        self._held.append(version)
        self.worker.submit(Ticket(Request(version, version, fields), self._store.retain()))

    def release(self, oldest: int | None, interrupted: Callable[[], bool]) -> None:
        """Releases the versions that no collector uses any more, apart from the newest."""
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
