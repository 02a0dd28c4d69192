"""The workers of one lane, the weights with which they act, and their members as the main process sees them."""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from minding.engine.chain.context import Context
from minding.engine.chain.lanes import Run
from minding.engine.chain.lifecycle import GUARANTEES
from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import Node
from minding.engine.chain.trace import Trace
from minding.engine.errors import ChainError, CheckpointError, ConfigError
from minding.engine.lanes.division import Part
from minding.engine.lanes.inference import InferenceService
from minding.engine.lanes.options import LaneOptions
from minding.engine.lanes.shipping import PickledMembers
from minding.engine.lanes.supervised import SupervisedWorker, Ticket, Wait, close_all
from minding.engine.lanes.transport import Answer, Request, Snapshot, Transport, WeightStore
from minding.engine.lanes.worker import WorkerPlan
from minding.engine.types import Array, StateDict, Stateful

_log = logging.getLogger("minding.lanes")
_GLANCE = 0.01  # s, for one look at all workers of which one is waited for
_WORKER = {Role.COLLECT: "collector", Role.EVALUATE: "evaluator"}


class WorkerGroup:
    """Workers that run the same members.

    `prepare` pickles the members after a checkpoint has been loaded, so that workers continue from it; workers start
    with their first requests.
    """

    def __init__(
        self,
        part: Part,
        role: Role,
        cores: Sequence[frozenset[int]],
        options: LaneOptions,
        transport: Transport,
        run: Run,
    ) -> None:
        self.part, self._run = part, run
        name, count = _WORKER[role], len(cores)
        names = [name if count == 1 else f"{name} {k}" for k in range(count)]
        timeout = options.timeout
        # The options are resolved here.
        assert timeout is not None
        self.workers = [SupervisedWorker(name, transport, timeout, options.start_timeout) for name in names]
        self.trace: Trace | None = None
        self._lane, self._cores, self._transport = role.value, cores, transport
        self._options = options
        self.shards = options.shards if role is Role.COLLECT else 1
        self.envs = 0
        ahead = options.max_staleness or 0
        self._depth = ahead + 1 if role is Role.COLLECT else 1
        # Evaluators compute networks themselves.
        self.inference = options.inference if role is Role.COLLECT else "local"
        self.service: InferenceService | None = None
        self._pickled: PickledMembers
        self._store: WeightStore
        self._context: type[Context]
        self._prepared = False

    @property
    def everyone(self) -> list[SupervisedWorker]:
        """The workers, and their inference server if there is one."""
        return [*self.workers, *([self.service.worker] if self.service else [])]

    @property
    def most(self) -> int:
        """The largest possible number of workers, including a server."""
        return len(self.workers) + (self.inference != "local")

    def _best(self) -> str:
        """The best guarantee for a resumed run, see `engine.chain.lifecycle.GUARANTEES`."""
        ahead = self._options.max_staleness or 0
        if self._options.order == "arrival":
            return "arrival"
        if self.inference != "local" and len(self.workers) > 1:
            return "batched"
        # Between two iterations, no request is under way.
        return "in-flight" if ahead else "exact"

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that represent the members in the views of the main process."""
        kinds = [
            StatefulRemoteMember if isinstance(leaf.middleware, Stateful) else RemoteMember for leaf in self.part.leaves
        ]
        return tuple(
            Node(kind(leaf, self.workers, self._best), leaf.position, leaf.name, leaf.role, leaf.declaration)
            for kind, leaf in zip(kinds, self.part.leaves)
        )

    def prepare(self, context: type[Context]) -> None:
        """Pickles the members and allocates memory for weights, once."""
        if self._prepared:
            return
        self._pickled = PickledMembers([member.middleware for member in self.part.members], self._lane)
        if self.shards > 1:
            self.envs = self._share()
        # A version for each request under way, the newest one, and one to write into.
        self._store = self._transport.store(self._pickled.weights(), self._depth + 2)
        for leaf in self.part.leaves:
            for hook in ("finish", "resumed"):
                if hasattr(leaf.middleware, hook):
                    _log.warning("%s runs in the %s lane, where %s(ctx) is not called", leaf.name, self._lane, hook)
        self._context = context
        if self.inference == "server" and not self._pickled.servable:
            raise ChainError(
                f"lanes.inference=server: nothing in the {self._lane} lane "
                f"({', '.join(member.name for member in self.part.members)}) acts with a network that a server could "
                "compute: collect with policy.collect_mode, or use lanes.inference=local"
            )
        inference = self.inference if self._pickled.servable else "local"
        if inference != "auto":
            self.settle(inference)
        self._prepared = True

    def like(self, inference: str) -> WorkerGroup:
        """Another group with the same members, prepared, whose networks are computed in this way."""
        options = LaneOptions(**{**self._options, "inference": inference})
        made = WorkerGroup(self.part, Role.COLLECT, self._cores, options, self._transport, self._run)
        made.prepare(self._context)
        return made

    def settle(self, inference: str) -> None:
        """Makes the plans of all workers, once it is known where networks are computed."""
        self.inference = inference
        if inference == "server":
            self.service = InferenceService(self._options, self._transport)
            self.service.prepare(self._pickled, self._store, self._depth)
        names = tuple(member.name for member in self.part.members)
        keys = tuple(f"{leaf.position}:{leaf.name}" for leaf in self.part.leaves)
        for index, (worker, cores) in enumerate(zip(self.workers, self._cores)):
            plan = WorkerPlan(
                lane=self._lane,
                index=index,
                names=names,
                keys=keys,
                members=self._pickled,
                context=self._context,
                outputs=self.part.outputs,
                written=self.part.written,
                depth=self._depth,
                own_process=self._transport.own_process,
                increments=self._transport.increments,
                shards=self.shards,
                port=None if self.service is None else self.service.port,
            )
            worker.prepare(plan, self._store, cores)

    @property
    def _oldest(self) -> int | None:
        """The oldest version that a worker uses."""
        return min((worker.oldest for worker in self.workers if worker.oldest is not None), default=None)

    def interrupted(self) -> bool:
        """Whether the run was interrupted; called during waits for workers, it also replaces a server that died."""
        if self.service is not None:
            self.service.tend()
        return self._run.interrupted_by is not None

    def publish(self) -> int:
        """Makes the learner's weights available if they changed; returns their version, counted from 0."""
        if self.service is not None:
            self.service.release(self._oldest, lambda: self._run.interrupted_by is not None)
        return self._store.publish(self._pickled.weights())

    def fields(self, ctx: Context) -> dict[str, Any]:
        """The fields of a context that a request carries."""
        names = dict.fromkeys((*ctx.kept, *self.part.inputs))
        # A context need not have all fields that members may read.
        return {name: getattr(ctx, name) for name in names if name in ctx.__dataclass_fields__}

    def submit(self, worker: int, number: int, fields: dict[str, Any]) -> Ticket:
        """Gives a worker a request with the newest weights."""
        if self.service is not None:
            self.service.offer(self._oldest)
        weights = self._store.retain()
        ticket = Ticket(Request(number, weights.version, fields), weights)
        self.workers[worker].submit(ticket)
        return ticket

    def answer(self, worker: int) -> Answer:
        """Waits for a worker's next answer and records it; raises the errors of `SupervisedWorker.wait`."""
        return self.answers([worker])[0]

    def answers(self, workers: Sequence[int]) -> list[Answer]:
        """Waits for the next answers of several workers and records all of them, or none."""
        if self.service is not None:
            self.service.await_others()
        for worker in workers:
            self.workers[worker].wait(self.interrupted)
        return [self._received(worker) for worker in workers]

    def first(self, rows: Sequence[range], seconds: float = math.inf) -> range | None:
        """Waits until all workers of one of these rows have answered, and returns the row. If several rows have
        answered, it is the first of them in the given order; None if none answers in time. The answers remain for
        `answers`. It raises the errors of `SupervisedWorker.wait`."""
        if self.service is not None:
            self.service.await_others()
        waits = {worker: Wait() for row in rows for worker in row}
        patience = 0.0
        while True:
            for row in rows:
                if all([self.workers[worker].watch(waits[worker], self.interrupted, patience) for worker in row]):
                    return row
            if max(wait.seconds for wait in waits.values()) >= seconds:
                return None
            # A first look at all of them, then short waits in turn.
            patience = _GLANCE / sum(map(len, rows))

    def arrived(self, workers: Sequence[int]) -> list[Answer]:
        """The next answers of workers for which `first` waited, without recording them."""
        return [answer for answer in (self.workers[worker].arrived for worker in workers) if answer is not None]

    def forward_calls(self, answer: Answer) -> None:
        """Passes calls of members on to the task, after the context has received the fields that they wrote."""
        if answer.finish:
            self._run.finish = True
        for event in answer.events:
            name, args, kwargs = pickle.loads(event)  # noqa: S301 - from a process of this run
            self._run.emit(name, *args, **kwargs)

    def _share(self) -> int:
        """The number of environments of each shard."""
        counts = {thing.num_envs for thing in self._pickled.shipped if hasattr(thing, "num_envs")}
        if not counts:
            members = ", ".join(member.name for member in self.part.members)
            raise ChainError(
                f"lanes.shards={self.shards}: the {self._lane} lane ({members}) holds no environments to divide, and "
                "each shard would collect a whole iteration: make them with make_env_manager, give the object that "
                "you ship `num_envs` (see engine.types.Shippable), or use lanes.shards=1"
            )
        for count in sorted(counts):
            if count % self.shards:
                raise ConfigError(
                    f"lanes.shards={self.shards} does not divide the {count} environments of the {self._lane} lane, of "
                    "which each shard has as many"
                )
        if len(counts) > 1:
            raise ChainError(
                f"lanes.shards={self.shards}: the {self._lane} lane holds sets of {sorted(counts)} environments: use "
                "one number of environments, or lanes.shards=1"
            )
        return int(counts.pop()) // self.shards

    def _received(self, worker: int) -> Answer:
        answer = self.workers[worker].poll()
        # It was waited for.
        assert answer is not None
        if self.trace is not None:
            self.trace.add(self.workers[worker].name, answer.spans, self.workers[worker].clock_error)
        if worker == 0:
            # A checkpoint of this process then holds the random stream as the first worker left it.
            for place, state in zip(self._pickled.acting, answer.state["acting"], strict=True):
                acting: Any = self._pickled.shipped[place]
                acting.load_state_dict(state)
        return answer

    def close_store(self) -> None:
        """Frees the memory of the weights, after all workers have ended; they are not started again."""
        if self._prepared:
            self._store.close()

    def read_weights(self, snapshot: Snapshot) -> dict[str, Array]:
        """A copy of the weights of a request; available until the next `publish` after its answer."""
        arrays = self._store.empty()
        self._store.read(snapshot, arrays)
        return arrays


def close_groups(groups: Sequence[WorkerGroup]) -> None:
    """Ends all workers of some groups, at the same time."""
    services = [group.service for group in groups if group.service is not None]
    for service in services:
        service.close_port()
    close_all([worker for group in groups for worker in group.everyone])
    for service in services:
        service.close_port()
    for group in groups:
        group.close_store()


class RemoteMember:
    """Represents a member of a lane for hooks and checkpoints: its state is the workers' after their last
    answers."""

    def __init__(self, leaf: Node, workers: list[SupervisedWorker], guarantee: Callable[[], str]) -> None:
        self._member: Any = leaf.middleware
        self._guarantee = guarantee
        self.declaration = leaf.declaration

    def __call__(self, ctx: Any) -> None:
        raise AssertionError("runs in a worker")

    @property
    def resume_guarantee(self) -> str:
        """The weaker guarantee of the member's and the lane's: rollouts under way are collected again, and with
        ``lanes.order=arrival`` the order in which rollouts are used does not repeat."""
        own = str(getattr(self._member, "resume_guarantee", "exact"))
        return max(own, self._guarantee(), key=GUARANTEES.index)

    def close(self) -> None:
        getattr(self._member, "close", lambda: None)()


class StatefulRemoteMember(RemoteMember):
    """A remote member with state. With several workers it holds the states of the others under ``workers``, with their
    random streams for acting; the stream of the first worker is part of the policy's state."""

    def __init__(self, leaf: Node, workers: list[SupervisedWorker], guarantee: Callable[[], str]) -> None:
        super().__init__(leaf, workers, guarantee)
        self._key = f"{leaf.position}:{leaf.name}"
        self._workers = workers

    def state_dict(self) -> StateDict:
        first = self._state_of(self._workers[0])
        # Before its first answer, the state of a worker is the state of the member in this process.
        state = dict(self._member.state_dict() if first is None else first)
        others = {str(k): worker for k, worker in enumerate(self._workers) if k and worker.state is not None}
        if others:
            acting = {k: enumerate((worker.state or {})["acting"]) for k, worker in others.items()}
            state["workers"] = {
                k: {"member": self._state_of(worker), "acting": {str(place): state for place, state in acting[k]}}
                for k, worker in others.items()
            }
        return state

    def load_state_dict(self, state: StateDict) -> None:
        if any(worker.started for worker in self._workers):
            raise CheckpointError(f"{self._key} already runs in a lane: load its state before the first run")
        others = state.get("workers", {})
        for k, worker in enumerate(self._workers):
            own = {"member": state, "acting": {}} if k == 0 else others.get(str(k))
            if own is not None:
                start = worker.state or {"members": {}, "acting": list(own["acting"].values())}
                start["members"][self._key] = own["member"]
                worker.state = start

    def _state_of(self, worker: SupervisedWorker) -> StateDict | None:
        members = worker.state["members"] if worker.state else {}
        return members.get(self._key)
