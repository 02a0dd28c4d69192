"""The evaluate lane, as a middleware in the place of an evaluator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from minding.engine.lanes import LaneInterrupted
from minding.engine.lanes.crew import Crew
from minding.engine.lanes.messages import Ticket
from minding.engine.middleware import Declaration


class EvaluateLane:
    """Lets an evaluator measure a snapshot of the policy while training goes on.

    One evaluation at a time: what falls due meanwhile is made after it. The result comes into the context of the
    iteration in which it is there, with the `train_iter` and `env_step` that it measured, and the weights themselves.

    Args:
      crew: one worker.
      wait: whether to wait for each result, as a synchronous run does.
      interrupted: whether the run was asked to end.
    """

    def __init__(self, crew: Crew, wait: bool, interrupted: Callable[[], bool]) -> None:
        self._crew = crew
        self._wait = wait
        self._interrupted = interrupted
        self._due: list[Callable[[Any], bool]] = [
            getattr(leaf.middleware, "due", lambda ctx: True) for leaf in crew.cut.leaves
        ]
        self._ticket: Ticket | None = None
        self._number = 0
        self.declaration = Declaration("evaluate lane", None, crew.cut.inputs, (*crew.cut.outputs, "eval_params"))

    def __call__(self, ctx: Any) -> None:
        """Takes a result that is there, and begins the next evaluation if it is due."""
        self._take(ctx, wait=False)
        if self._ticket is None and any(due(ctx) for due in self._due):
            self._crew.publish()
            self._ticket = self._crew.submit(0, self._number, self._crew.fields(ctx))
            self._number += 1
            if self._wait:
                self._take(ctx, wait=True)

    def settle(self, ctx: Any) -> None:
        """Waits for the evaluation that is under way; a signal gives it up."""
        with contextlib.suppress(LaneInterrupted):
            self._take(ctx, wait=True)

    def _take(self, ctx: Any, wait: bool) -> None:
        if self._ticket is None:
            return
        worker = self._crew.workers[0]
        answer = worker.answer(self._interrupted) if wait else worker.poll()
        if answer is None:
            return
        ticket, self._ticket = self._ticket, None
        self._crew.received(0, answer)
        for name, value in answer.fields.items():
            setattr(ctx, name, value)
        if "eval_params" in ctx.__dataclass_fields__:
            # Nothing is published before the next ticket.
            ctx.eval_params = self._crew.read_weights(ticket.slot, ticket.version)
