"""The task of a worker process: what a member tells it is sent to the main process with the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import cloudpickle

from minding.engine.chain.context import Context
from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import Step, run_first_halves, run_second_halves
from minding.engine.chain.task import Task, task
from minding.engine.errors import ChainError


class LaneTask(Task):
    """What `task` is in a worker, for members that hold on to it or import it.

    `finish`, `stop` and `emit` take effect in the main process, in the iteration that takes up the answer. What needs
    the run itself (handlers, checkpoints, a wait for the main process) is refused.
    """

    @classmethod
    def install(cls, lane: str) -> LaneTask:
        """Turns the global task of this process into one of these, for modules that have already imported it."""
        task.start()
        task.__class__ = cls
        assert isinstance(task, cls)
        task._lane = lane
        task._running = True
        task._roles = {Role(lane)}
        task._emitted = []
        return task

    _lane: str
    _emitted: list[bytes]

    def play(self, steps: Sequence[Step], ctx: Context) -> None:
        """Runs both halves of the members on the context of a ticket."""
        self._ctx, self._finish, self._emitted = ctx, False, []
        run_first_halves(steps, ctx, self._stack, ctx.total_step)
        run_second_halves(self._stack, ctx.total_step)

    @property
    def emitted(self) -> list[bytes]:
        """The events of the last ticket, each pickled: event, arguments, keyword arguments."""
        return self._emitted

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Keeps the event for the handlers in the main process, with its arguments as they are now."""
        try:
            self._emitted.append(cloudpickle.dumps((event, args, kwargs)))
        except Exception as error:  # Whatever a user's __reduce__ raises.
            raise ChainError(
                f"emit({event!r}): its arguments cannot be sent from the {self._lane} lane ({error}); emit numbers, "
                "strings or arrays"
            ) from error
        # For other members of a parallel.
        super().emit(event, *args, **kwargs)

    def wait_for(self, event: str, timeout: float | None = None, **other: Any) -> Any:
        """As usual among the members of a `parallel`; events of the main process do not come here."""
        if not self._events.gathered:
            self._refuse("wait_for", "events of the main process do not come here")
        return super().wait_for(event, timeout, **other)

    def on(self, event: str, handler: Any) -> NoReturn:
        """Refused: handlers are called in the main process."""
        self._refuse("on", "handlers are called in the main process; register them before task.run")

    def once(self, event: str, handler: Any) -> NoReturn:
        """Refused: handlers are called in the main process."""
        self._refuse("once", "handlers are called in the main process; register them before task.run")

    def at_boundary(self, fn: Any) -> NoReturn:
        """Refused: iterations end in the main process."""
        self._refuse("at_boundary", "iterations end in the main process")

    def _refuse(self, what: str, why: str) -> NoReturn:
        raise ChainError(
            f"{what}: called in the {self._lane} lane, a separate process: {why}. Call it from a middleware without "
            "a role, which runs in the main process"
        )
