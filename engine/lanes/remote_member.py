"""Members of a lane as the main process sees them: their workers run them, and their state goes into checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minding.engine.chain.lifecycle import GUARANTEES
from minding.engine.chain.pipeline import Node
from minding.engine.errors import CheckpointError
from minding.engine.lanes.supervised import SupervisedWorker
from minding.engine.types import StateDict, Stateful


class RemoteMember:
    """Represents a member of a lane for hooks and checkpoints: its state is the workers' after their last answers.

    Args:
      leaf: the member.
      workers: the workers that run it; the first continues the state of a synchronous run.
      guarantee: returns the best guarantee that the lane gives, see `engine.chain.lifecycle.GUARANTEES`.
    """

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
        """Closes the member in the main process."""
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
            state["workers"] = {
                k: {"member": self._state_of(worker), "acting": _numbered(worker)} for k, worker in others.items()
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


def _numbered(worker: SupervisedWorker) -> StateDict:
    assert worker.state is not None
    return {str(place): state for place, state in enumerate(worker.state["acting"])}


def remote_member(leaf: Node, workers: list[SupervisedWorker], guarantee: Callable[[], str]) -> RemoteMember:
    """Returns what represents a member in the main process."""
    stateful = isinstance(leaf.middleware, Stateful)
    return (StatefulRemoteMember if stateful else RemoteMember)(leaf, workers, guarantee)
