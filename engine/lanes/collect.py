"""The collect lane, as a middleware in place of those that run in it."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from minding.engine.chain.middleware import Declaration
from minding.engine.chain.nodes import Node
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ChainError
from minding.engine.lanes.group import WorkerGroup
from minding.engine.lanes.messages import Request

_COUNTERS = ("env_step", "env_episode")


class CollectLane:
    """Keeps collectors busy and hands the context of each iteration its rollout.

    Iteration n gets the rollout of request n, whoever was fastest: which weights a rollout was collected with, and in
    which order rollouts are used, follow from the settings alone, so that an asynchronous run is repeatable bit for
    bit, as a synchronous one is. Request n is sent once at most `max_staleness` learner iterations before the n-th are
    missing; this bounds memory as well as age.

    Args:
      group: the collectors; request n goes to number n modulo their count.
      max_staleness: see `LaneOptions`.
      kept: fields of the context that outlive an iteration.
    """

    def __init__(self, group: WorkerGroup, max_staleness: int, kept: Sequence[str]) -> None:
        self._group = group
        self._ahead, self._kept = max_staleness, kept
        # The values of inputs that nothing has set in this iteration.
        self._unset: dict[str, Any] | None = None
        self._requests: collections.deque[Request] = collections.deque()
        self._number = 0
        # What is read and then written is a counter.
        self._counters = frozenset(group.part.inputs).intersection((*group.part.outputs, *_COUNTERS))
        # What an iteration adds to the counters, by the last one.
        self._gain: dict[str, Any] = {}
        self.declaration = Declaration("collect lane", None, group.part.inputs, (*group.part.outputs, "policy_lag"))

    def __call__(self, ctx: Any) -> None:
        """Sends as many requests as allowed, and waits for this iteration's rollout."""
        if self._ahead:
            self._refuse_late_inputs(ctx)
        version = self._group.publish()
        for ahead in range(len(self._requests), self._ahead + 1):
            self._give_out(ctx, ahead)
        worker = self._number % len(self._group.workers)
        answer = self._group.answer(worker)
        request = self._requests.popleft()
        self._number += 1
        for name, value in answer.fields.items():
            self._refuse_unclear(name)
            if name in self._counters and name in ctx.kept and type(value) in (int, float):
                # A request begins where its iteration was expected to begin.
                before, here = request.fields[name], getattr(ctx, name)
                self._gain[name] = value - before
                value = value if here == before else here + self._gain[name]
            if isinstance(value, Rollout):
                value.collector = worker
            setattr(ctx, name, value)
        if "policy_lag" in ctx.__dataclass_fields__:
            lag = version - request.version
            ctx.policy_lag = {"min": lag, "mean": float(lag), "max": lag}
        self._group.tell(answer)

    def check(self) -> None:
        """Refuses a chain in which middleware outside of the lane declare that they write what it reads.

        Raises:
          ChainError: with what to do.
        """
        for leaf in self._group.part.upstream if self._ahead else ():
            for name in leaf.declaration.writes if leaf.declaration else ():
                if name in self._late_inputs():
                    raise ChainError(self._too_late(name, [leaf]))

    def _refuse_unclear(self, name: str) -> None:
        """An undeclared member does not say whether it counts a kept field up or sets it; only here that matters."""
        if self._ahead and name in self._kept and name not in (*self._group.part.outputs, *_COUNTERS):
            raise ChainError(
                f"ctx.{name} is kept, and a function in the collect lane that declares nothing changed it: several "
                "iterations are under way, so it matters whether it is counted up or set. Declare the function: "
                f'@declare(role="collect", reads=("{name}",), writes=("{name}",)) counts it up, without `reads` sets it'
            )

    def _late_inputs(self) -> list[str]:
        return [name for name in self._group.part.inputs if name not in self._kept]

    def _refuse_late_inputs(self, ctx: Any) -> None:
        if self._unset is None:
            fresh = type(ctx)()
            inputs = [name for name in self._late_inputs() if name in ctx.__dataclass_fields__]
            self._unset = {name: getattr(fresh, name) for name in inputs}
        for name, unset in self._unset.items():
            value = getattr(ctx, name)
            if value is not unset and not (type(value) in (dict, list, set) and value == unset):
                raise ChainError(
                    self._too_late(name, [leaf for leaf in self._group.part.upstream if not leaf.declaration])
                )

    def _too_late(self, name: str, writers: list[Node]) -> str:
        named = " or ".join(f"{leaf.name} at position {leaf.position}" for leaf in writers) or "a middleware"
        return (
            f"{named} sets ctx.{name} in the main process, for a collector that works up to {self._ahead} iterations "
            f"ahead: it would come that many iterations late. Put it next to the collector with the role collect, "
            'task.use(fn, role="collect"), so that both run in the collect lane; or set lanes.max_staleness=0'
        )

    def _give_out(self, ctx: Any, ahead: int) -> None:
        number = self._number + ahead
        fields = self._group.fields(ctx)
        for name, gain in self._gain.items():
            fields[name] += ahead * gain
        fields["total_step"] += ahead
        self._requests.append(self._group.submit(number % len(self._group.workers), number, fields))
