"""The collect lane, as a middleware in the place of those that run in it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from minding.engine.lanes.crew import Crew
from minding.engine.lanes.messages import Ticket
from minding.engine.middleware import Declaration


class CollectLane:
    """Keeps collectors busy and hands the context of each iteration its rollout.

    Iteration n gets the rollout of ticket n, whoever was fastest: which weights a rollout was collected with, and in
    which order rollouts are learned from, follow from the settings alone, so that an asynchronous run repeats itself
    to the bit as a synchronous one does. Ticket n is given out once at most `max_staleness` learner iterations
    before the n-th are missing; the lane is as bounded in memory as in age.

    Args:
      crew: the collectors; ticket n goes to number n modulo their count.
      max_staleness: see `LaneOptions`.
      interrupted: whether the run was asked to end.
    """

    def __init__(self, crew: Crew, max_staleness: int, interrupted: Callable[[], bool]) -> None:
        self._crew = crew
        self._ahead = max_staleness
        self._interrupted = interrupted
        self._tickets: collections.deque[Ticket] = collections.deque()
        self._number = 0
        # What is read and then written is counted up.
        self._counters = frozenset(crew.cut.inputs).intersection(crew.cut.outputs)
        # What an iteration adds to the counters, by the last one.
        self._gain: dict[str, Any] = {}
        self.declaration = Declaration("collect lane", None, crew.cut.inputs, (*crew.cut.outputs, "policy_lag"))

    def __call__(self, ctx: Any) -> None:
        """Gives out tickets as far as they may go, and waits for this iteration's rollout."""
        version = self._crew.publish()
        for ahead in range(len(self._tickets), self._ahead + 1):
            self._give_out(ctx, ahead)
        worker = self._number % len(self._crew.workers)
        answer = self._crew.workers[worker].answer(self._interrupted)
        ticket = self._tickets.popleft()
        self._number += 1
        self._crew.received(worker, answer)
        for name, value in answer.fields.items():
            if name in self._counters and name in ctx.kept and type(value) in (int, float):
                # A ticket begins where its iteration was expected to begin.
                before, here = ticket.fields[name], getattr(ctx, name)
                self._gain[name] = value - before
                value = value if here == before else here + self._gain[name]
            setattr(ctx, name, value)
        if "policy_lag" in ctx.__dataclass_fields__:
            lag = version - ticket.version
            ctx.policy_lag = {"min": lag, "mean": float(lag), "max": lag}

    def _give_out(self, ctx: Any, ahead: int) -> None:
        number = self._number + ahead
        fields = self._crew.fields(ctx)
        for name, gain in self._gain.items():
            fields[name] += ahead * gain
        fields["total_step"] += ahead
        self._tickets.append(self._crew.submit(number % len(self._crew.workers), number, fields))
