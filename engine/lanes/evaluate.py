"""The evaluate lane, as a middleware in place of an evaluator."""

import contextlib
from collections.abc import Callable
from typing import Any

from minding.engine.chain.middleware import Declaration
from minding.engine.lanes.group import WorkerGroup
from minding.engine.lanes.supervised import Ticket
from minding.engine.process.signals import Interrupted

_MARKS = {"last_eval_iter": "train_iter", "last_eval_clock": "clock"}
"""Fields that an evaluation writes and whose values are known when it begins: the progress of the run."""


class EvaluateLane:
    """Lets an evaluator measure a snapshot of the policy while training continues.

    The result of an evaluation takes effect in the iteration in which the next evaluation is due, and no earlier. Both
    iterations follow from counters of the context, so that neither the snapshots nor the effects of results
    (`eval_value`, the best checkpoint, an end by `stop_value`) depend on the speed of the evaluator. If it has not
    finished by then, the run waits for it. The result contains the `train_iter` and `clock` of the snapshot, and the
    weights themselves.
    """

    def __init__(self, group: WorkerGroup, wait: bool) -> None:
        self._group = group
        self._wait = wait
        self._due: list[Callable[[Any], bool]] = [
            getattr(leaf.middleware, "due", lambda ctx: True) for leaf in group.part.leaves
        ]
        self._ticket: Ticket | None = None
        self._marks: dict[str, Any] = {}
        self._number = 0
        self.declaration = Declaration("evaluate lane", None, group.part.inputs, (*group.part.outputs, "eval_params"))

    def __call__(self, ctx: Any) -> None:
        """Begins an evaluation if one is due, after it has taken the result of the previous one."""
        if self._ticket is not None:
            self._group.workers[0].look()
            if not self._due_again(ctx):
                return
            self._take(ctx)
        if any(due(ctx) for due in self._due):
            self._begin(ctx)
            if self._wait:
                self._take(ctx)

    def settle(self, ctx: Any) -> None:
        """Waits for the running evaluation; a signal ends the wait, and its result is lost."""
        with contextlib.suppress(Interrupted):
            self._take(ctx)

    def _due_again(self, ctx: Any) -> bool:
        """Whether another evaluation would be due if the running one had taken no time."""
        before = {name: getattr(ctx, name) for name in self._marks}
        try:
            _set_all(ctx, self._marks)
            return any(due(ctx) for due in self._due)
        finally:
            _set_all(ctx, before)

    def _begin(self, ctx: Any) -> None:
        self._group.publish()
        self._ticket = self._group.submit(0, self._number, self._group.fields(ctx))
        self._number += 1
        self._marks = {
            name: getattr(ctx, counter)
            for name, counter in _MARKS.items()
            if name in self._group.part.outputs and hasattr(ctx, counter)
        }

    def _take(self, ctx: Any) -> None:
        if self._ticket is None:
            return
        answer = self._group.answer(0)
        ticket, self._ticket = self._ticket, None
        _set_all(ctx, answer.fields)
        if "eval_params" in ctx.__dataclass_fields__:
            # Nothing is published before the next request.
            ctx.eval_params = self._group.read_weights(ticket.weights)
        self._group.forward_calls(answer)


def _set_all(ctx: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(ctx, name, value)
