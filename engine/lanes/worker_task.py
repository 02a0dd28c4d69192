"""The task of a worker: calls of members to it are sent to the main process with the answer."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import cloudpickle

from minding.engine.chain.context import Context
from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import Step, run_first_halves, run_second_halves
from minding.engine.chain.task import Task, task
from minding.engine.errors import ChainError


class WorkerTask(Task[Any]):
    """The global task in a worker, for members that keep a reference to it or import it.

    `finish`, `stop` and `emit` take effect in the main process, in the iteration that takes the answer. Methods that
    need the run itself (handlers, checkpoints, a wait for the main process) are refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.start()
        self._lane = ""
        self._emitted: list[bytes] = []

    def enter(self, lane: str) -> None:
        """Begins the work for the members of a lane."""
        self._lane, self._roles, self._running = lane, {Role(lane)}, True

    def play(self, steps: Sequence[Step], ctx: Context) -> None:
        """Runs both halves of the members on the context of a request."""
        self._run.ctx, self._run.finish, self._emitted = ctx, False, []
        run_first_halves(steps, ctx, self._run.stack, ctx.total_step)
        run_second_halves(self._run.stack, ctx.total_step)

    @property
    def emitted(self) -> list[bytes]:
        """The events of the last request, each pickled: event, arguments, keyword arguments."""
        return self._emitted

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Keeps the event for the handlers in the main process, with the present state of its arguments."""
        try:
            self._emitted.append(cloudpickle.dumps((event, args, kwargs)))
        except Exception as error:  # A user's __reduce__ may raise anything.
            raise ChainError(
                f"emit({event!r}): its arguments cannot be sent from the {self._lane} lane ({error}); emit numbers, "
                "strings or arrays"
            ) from error
        # Other members of a parallel may wait for it.
        super().emit(event, *args, **kwargs)

    def wait_for(self, event: str, timeout: float | None = None) -> Any:
        """Waits for events of other members of a `parallel`; events of the main process do not reach a worker."""
        if not self._run.events.gathered:
            self._refuse("wait_for", "events of the main process do not come here")
        return super().wait_for(event, timeout)

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
            f"{what}: called in the {self._lane} lane, in a worker: {why}. Call it from a middleware without "
            "a role, which runs in the main process"
        )


_of_process: WorkerTask | None = None
_of_thread = threading.local()
_lock = threading.Lock()
_threads = 0


def _found() -> WorkerTask | None:
    """The task of the worker that runs in this thread or process, if there is one."""
    own: WorkerTask | None = _of_thread.__dict__.get("task", _of_process)
    return own


class _Found(Task[Any]):
    """The class of the global task where workers run: it forwards to the task of the calling worker, if there is one.
    Modules imported the global task before a worker existed, and members refer to it; so it remains the same object."""

    def __getattribute__(self, name: str) -> Any:
        found = _found()
        return object.__getattribute__(self if found is None else found, name)

    def __setattr__(self, name: str, value: Any) -> None:
        found = _found()
        object.__setattr__(self if found is None else found, name, value)


def replace_task(own: WorkerTask) -> None:
    """Makes the global task of this process, a worker, forward to `own`."""
    global _of_process
    _of_process = own
    _make_global_task(_Found)


@contextlib.contextmanager
def replace_task_in_thread(own: WorkerTask) -> Iterator[None]:
    """Makes the global task forward to `own` in this thread, a worker; other threads are not affected."""
    global _threads
    with _lock:
        _threads += 1
        _make_global_task(_Found)
    _of_thread.task = own
    try:
        yield
    finally:
        del _of_thread.task
        with _lock:
            _threads -= 1
            if not _threads and _of_process is None:
                _make_global_task(Task)


def _make_global_task(kind: type[Task[Any]]) -> None:
    # Not by an assignment, which `_Found` would forward.
    object.__setattr__(task, "__class__", kind)
