"""The task: runs a chain of middleware repeatedly, and calls its hooks however the run ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from minding.engine.chain import lifecycle
from minding.engine.chain.boundary import Boundary
from minding.engine.chain.check import check_chain, pipeline_view
from minding.engine.chain.context import Context, ContextT, OnlineRLContext
from minding.engine.chain.ending import Ending, check_max_step
from minding.engine.chain.events import Emitter, EventBus
from minding.engine.chain.familiar import RolePlayer, refuse_arguments
from minding.engine.chain.lanes import UNDIVIDED, LaneFactory, Lanes, MakeLanes
from minding.engine.chain.middleware import Middleware, Role, check_callable, name_of
from minding.engine.chain.nodes import Node, chain_nodes
from minding.engine.chain.pipeline import Composer, Composite, Half, Step, run_first_halves, run_second_halves
from minding.engine.chain.recording import Recorded, Recording
from minding.engine.errors import ChainError, CheckpointError, MiddlewareError, nearest
from minding.engine.process.signals import Interrupted, SignalGuard
from minding.engine.types import StateDict

Wrapper = Callable[[Middleware[ContextT]], Middleware[ContextT]]
_FnContext = TypeVar("_FnContext", bound=Context)


class Task(Ending, Recorded, Composer, Emitter, RolePlayer, Generic[ContextT]):
    """A chain of middleware, the context they share, and the loop around them.

    ::

        with task.start(ctx=OnlineRLContext()):
            task.use(StepCollector(...)).use(OffPolicyLearner(...))
            task.run(max_step=1000)

    For type checkers, ``start(ctx=MyContext())`` returns a ``Task[MyContext]``; ``Task()``, and so the global `task`,
    is a ``Task[OnlineRLContext]``.

    Tasks share nothing with each other; a middleware may run its own task. The global `task` is an ordinary task.
    Only the events and `stop` are safe to call from other threads.
    """

    lane_factory: ClassVar[LaneFactory]
    """Reads `lanes` of `start`; `minding.engine`, which puts chain and lanes together, sets it."""

    def __init__(self: Task[OnlineRLContext]) -> None:
        self._started = False
        # Whether its `with` block is open.
        self._entered = False
        self._running = False
        # Never replaced, because second halves made by `wrap` keep a reference to it.
        self._stack: list[Half] = []
        self._ctx: ContextT
        self._reset(OnlineRLContext(), Recording(profile=False, trace=False), resume=None)

    def __reduce__(self) -> tuple[Callable[[], Task[Any]], tuple[()]]:
        # In a worker, middleware with a reference to a task find the task of their own process.
        return _task_of_this_process, ()

    def _reset(self, ctx: Context, recording: Recording, resume: str | Path | None) -> None:
        self._ctx = cast(ContextT, ctx)
        self._make_lanes: MakeLanes | None = None
        self._lanes: Lanes | None = None
        self._recording = recording
        self._resume_request = resume
        self._chain: list[Middleware[Any]] = []
        self._given_roles: list[Role | None] = []
        self._optional: list[Middleware[Any]] = []
        self._wrappers: list[Wrapper[Any]] = []
        self._roles: set[Role] = set()
        self._events = EventBus()
        self._finish = False
        self._signal: str | None = None
        self._stop_reason: str | None = None
        self._error: BaseException | None = None
        self._boundary = Boundary()
        self._stack.clear()

    # Start and end

    @overload
    def start(
        self, async_mode: bool = False, ctx: None = None, *, lanes: object = None, profile: bool = False,
        trace: bool = False, resume: str | Path | None = None, **other: Any,
    ) -> Task[OnlineRLContext]: ...  # fmt: skip
    @overload
    def start(
        self, async_mode: bool = False, ctx: _FnContext = ..., *, lanes: object = None, profile: bool = False,
        trace: bool = False, resume: str | Path | None = None, **other: Any,
    ) -> Task[_FnContext]: ...  # fmt: skip
    def start(
        self,
        async_mode: bool = False,
        ctx: Context | None = None,
        *,
        lanes: object = None,
        profile: bool = False,
        trace: bool = False,
        resume: str | Path | None = None,
        **other: Any,
    ) -> Task[Any]:
        """Removes the last chain and prepares the task for a new one; use it in a ``with`` statement.

        Args:
          async_mode: collect and evaluate in separate processes while the chain learns, see `engine.lanes`.
          ctx: context of the first iteration; ``OnlineRLContext()`` if None.
          lanes: settings of an asynchronous run, `engine.lanes.LaneOptions` or a mapping with its fields.
          profile: measure the time of each middleware for `profile`.
          trace: record when each middleware ran, for `write_trace`.
          resume: ``"latest"``, a checkpoint folder or a run folder; the chain's CkptSaver restores everything
            to that state at the start of `run`. None starts from the beginning.
        Raises:
          ChainError: a run is in progress, the block of an earlier start has not ended, `ctx` is not a context,
            `resume` is not a path or name, or an argument is unknown.
          ConfigError: `lanes` holds a value that is out of range.
        """
        if self._running:
            raise ChainError("start: this task is running; use another Task() inside a middleware")
        if ctx is not None and not isinstance(ctx, Context):
            workers = f"; processes that collect: lanes={{'collectors': {ctx}}}" if isinstance(ctx, int) else ""
            raise ChainError(f"start: ctx must be a Context object such as OnlineRLContext(), got {ctx!r}{workers}")
        refuse_arguments("start", other, ("async_mode", "ctx", "lanes", "profile", "trace", "resume"))
        if self._entered:
            raise ChainError("start: the block of an earlier start has not ended; use another Task() inside it")
        if resume is not None and not isinstance(resume, (str, Path)):
            raise ChainError(f"start: resume must be 'latest', a checkpoint folder or a run folder, got {resume!r}")
        self._reset(OnlineRLContext() if ctx is None else ctx, Recording(profile, trace), resume)
        self._make_lanes = type(self).lane_factory(lanes) if async_mode else None
        self._started = True
        return self

    # Middleware release what they hold when the block ends, so that several runs fit into one process.
    def __enter__(self) -> Task[ContextT]:
        self._require_started("with task")
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        self.stop()
        if self._lanes is not None:
            self._lanes.close()
        failed = lifecycle.call_close_hooks(self._nodes())
        if error is None:
            lifecycle.raise_first(failed, "closing failed too")
        else:
            lifecycle.note_others(error, failed, "closing failed too")

    def stop(self) -> None:
        """Ends a run after the current iteration; outside a run, closes the task that `start` prepared.

        Context, chain and time table remain available until the next `start`.
        """
        if self._running:
            self._finish = True
        else:
            self._started = False

    @property
    def ctx(self) -> ContextT:
        """The context of the current iteration; after a run, the context of the next one."""
        return self._ctx

    @property
    def running(self) -> bool:
        """Whether `run` is in progress."""
        return self._running

    @property
    def resuming(self) -> bool:
        """Whether `start` was asked to resume and `run` has not done so yet."""
        return self._resume_request is not None

    # The chain

    def use(
        self,
        fn: Middleware[_FnContext],
        *,
        role: Role | str | None = None,
        before: str | None = None,
        optional: bool = False,
        **other: Any,
    ) -> Task[ContextT]:
        """Adds a middleware to the end of the chain, or before another one; returns the task.

        Args:
          fn: the middleware: a function of the context, a generator function with one yield, or a callable object.
          role: role of a user function that declares none; replaces a declared one.
          before: name of the middleware in front of which to insert it (the first of that name); None adds it at the
            end.
          optional: whether a checkpoint of a chain without it, or with another one in its place, may be resumed.
        Raises:
          ChainError: before `start`, during a run, with an unknown argument, or the chain has no middleware called
            `before`.
          MiddlewareError: `fn` is not callable, or `role` is given to a composite (its members have roles).
        """
        refuse_arguments("use", other, ("role", "before", "optional"))
        self._require_started("use")
        self._require_idle("use")
        if self._lanes is not None:
            raise ChainError("use: the lanes of this asynchronous run already exist: add middleware before it runs")
        check_callable(fn, f"task.use (position {len(self._chain)}) got")
        if role is not None and isinstance(fn, Composite):
            raise MiddlewareError(f"use: {fn.kind} cannot have a role; declare the roles of its members")
        place = len(self._chain) if before is None else self._place_of(before)
        self._chain.insert(place, fn)
        self._given_roles.insert(place, None if role is None else Role.of(role))
        if optional:
            self._optional.append(fn)
        return self

    @property
    def members(self) -> tuple[Middleware[Any], ...]:
        """The middleware of the chain, in order, as they were given to `use`."""
        return tuple(self._chain)

    def _place_of(self, name: str) -> int:
        names = [name_of(each) for each in self._chain]
        if name not in names:
            raise ChainError(
                f"use(before={name!r}): the chain has no middleware of that name{nearest(name, names)}; it has "
                f"{', '.join(names) or 'none yet'}"
            )
        return names.index(name)

    def use_wrapper(self, wrapper: Wrapper[_FnContext]) -> Task[ContextT]:
        """Wraps every middleware, also those added later, in ``wrapper(fn) -> fn``; the first wrapper is innermost.

        The wrapped function must return the result of the middleware: a generator that is dropped never runs. Each
        middleware keeps its name, role and declaration. Members of composites are not wrapped individually.

        Raises:
          ChainError: before `start` or during a run.
          MiddlewareError: `wrapper` is not callable.
        """
        self._require_started("use_wrapper")
        self._require_idle("use_wrapper")
        check_callable(wrapper, "task.use_wrapper got")
        self._wrappers.append(wrapper)
        return self

    # The run

    def run(self, max_step: int | None = None) -> None:
        """Checks the chain and runs iterations until `max_step`, `finish` or a signal.

        During an iteration ``ctx.total_step`` is the number of finished iterations.

        1. ``begin()`` of each middleware that has it is called.
        2. If `start` was asked to resume, the state is restored, ``resumed(ctx)`` of each middleware that has it is
           called, and the event ``resumed`` is emitted.
        3. The iterations run. After an error in 1 or 2 there are none, and no hooks of 4.
        4. However the iterations end, ``finish(ctx)`` of each middleware that has it is called once, in the order of
           the chain, but CkptSaver's first, so that it saves the state after the last iteration. Then the event
           ``finish`` is emitted once.

        A second run continues from the current context; after SIGINT or SIGTERM it ends at once, until the next
        `start`. A second signal ends the process at once, without hooks (see `SignalGuard`).

        Args:
          max_step: the run ends when ``ctx.total_step`` reaches this number: with 1000, a run resumed at 400 makes
            600 more iterations. None: no limit.
        Raises:
          ChainError: before `start`, during a run, without middleware, or the chain does not fit together.
          ConfigError: `max_step` is not an integer of 0 or more.
          CheckpointError: there is no checkpoint to resume from, or it does not fit this task.
          Exception: the error of a middleware, handler or hook, with a note that says where it occurred.
        """
        limit = check_max_step(max_step)
        steps, nodes = self._prepare()
        self._running = True
        self._finish = False
        self._events.own(True)
        try:
            with SignalGuard(self.interrupt, "stopping after this iteration"):
                # Outside of the block that ends a run: a run that could not begin or resume has nothing to save.
                lifecycle.raise_first(lifecycle.call_begin_hooks(nodes), "another begin hook failed too")
                self._resume(nodes)
                self._run_and_end(steps, nodes, limit)
        finally:
            self._events.own(False)
            self._running = False

    def _prepare(self) -> tuple[list[Step], list[Node]]:
        self._require_started("run")
        self._require_idle("run")
        if not self._chain:
            raise ChainError("run: the chain is empty; add middleware with task.use(...) first")
        check_chain(self._chain, type(self._ctx), self._given_roles)
        self._divide_into_lanes()
        nodes = self._nodes()
        if self._resume_request is not None:
            lifecycle.checkpointer(nodes)
        self._recording.begin([node.name for node in nodes])
        return [self._step(index, node) for index, node in enumerate(nodes)], nodes

    def _step(self, index: int, node: Node) -> Step:
        call = node.middleware
        for wrapper in self._wrappers:
            call = wrapper(call)
            check_callable(call, f"the wrapper {name_of(wrapper)} made of {node.name}")
        return Step(self._recording.timed(index, node.name, call), node.name, f"position {index}", node.declaration)

    def _resume(self, nodes: list[Node]) -> None:
        if self._resume_request is None:
            return
        lifecycle.checkpointer(nodes).resume(self._resume_request)
        self._resume_request = None
        lifecycle.raise_first(lifecycle.call_resumed_hooks(nodes, self._ctx), "another resumed hook failed too")
        self._events.emit("resumed")

    def _run_and_end(self, steps: list[Step], nodes: list[Node], limit: int | None) -> None:
        try:
            if self._lanes is not None:
                self._lanes.begin(self._recording.trace)
            self._stop_reason = self._iterate(steps, limit)
            if self._lanes is not None and self._signal is None:
                self._lanes.settle(self._ctx)
        except BaseException as error:
            self._boundary.drop()
            self._stop_reason, self._error = "exception", error
            lifecycle.note_others(error, self._end(nodes), "the end of the run failed too")
            # Its traceback would keep all objects of the run alive.
            self._error = None
            raise
        lifecycle.raise_first(self._end(nodes), "another finish hook failed too")

    def _iterate(self, steps: list[Step], limit: int | None) -> str:
        """Runs iterations; returns why it stopped."""
        stack = self._stack
        while True:
            self._events.raise_pending()
            if self._signal is not None:
                return self._signal
            if self._finish:
                return "finish"
            total_step = self._ctx.total_step
            if limit is not None and total_step >= limit:
                return "max_step"
            self._boundary.within = True
            self._ctx.begin_iteration()
            begun = None if self._lanes is None else self._ctx.state_dict()
            try:
                run_first_halves(steps, self._ctx, stack, total_step)
            except Interrupted:
                # The iteration has not begun, unless a middleware before the waiting one counted something.
                self._boundary.within = self._ctx.state_dict() != begun
                self._boundary.drop()
                continue
            if stack:
                run_second_halves(stack, total_step)
            self.renew()
            self._boundary.reach(total_step)

    def renew(self) -> None:
        """Puts the context of the next iteration in place; `run` does it after each one."""
        self._ctx = self._ctx.renew()

    def at_boundary(self, fn: Callable[[], object]) -> None:
        """Calls `fn` once, when this iteration is over: both halves of all middleware ran, and `ctx` is the next.

        At that point `state_dict` is exact. If an error aborts the iteration, `fn` is not called.

        Raises:
          ChainError: no iteration is running.
        """
        self._boundary.add(fn)

    def _end(self, nodes: list[Node]) -> list[Exception]:
        """Calls the hooks and emits ``finish``; returns the errors that occurred."""
        errors = lifecycle.call_finish_hooks(nodes, self._ctx)
        try:
            self._events.emit("finish")
            self._events.raise_pending()
        except Exception as error:
            errors.append(error)
        return errors

    # State and views

    def state_dict(self) -> StateDict:
        """Returns the kept context fields, and the chain with the state of each stateful middleware."""
        middleware = lifecycle.middleware_state(self._nodes(), self._optional)
        return {"ctx": self._ctx.state_dict(), "division": self.division, **middleware}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores context and middleware from a result of `state_dict`; call it after `use` and before `run`.

        Raises:
          CheckpointError: chain, context or the division among collectors differ from the saved ones.
        """
        if state.keys() != {"ctx", "chain", "division", "middleware"}:
            raise CheckpointError(
                f"a task's state has the keys ctx, chain, division and middleware, got {sorted(state)}"
            )
        # Members of lanes get their state in their workers.
        self._divide_into_lanes()
        lifecycle.check_division(self.division, state["division"])
        lifecycle.check_chain_state(self._nodes(), state, self._optional)
        self._ctx.load_state_dict(state["ctx"])
        lifecycle.load_middleware_state(self._nodes(), state, self._optional)

    @property
    def within_iteration(self) -> bool:
        """Whether an iteration is running, or was aborted by an error; see `at_boundary`."""
        return self._boundary.within

    @property
    def resume_guarantee(self) -> str:
        """The guarantee for a run that resumes from the present `state_dict`: the weakest of `lifecycle.GUARANTEES`."""
        return lifecycle.weakest_guarantee(self._nodes(), self._boundary.within)

    def _nodes(self) -> list[Node]:
        """The chain as this process runs it."""
        return chain_nodes(self._chain, self._given_roles) if self._lanes is None else self._lanes.nodes

    def _divide_into_lanes(self) -> None:
        if self._make_lanes is not None and self._lanes is None:
            lanes = self._divided(self._make_lanes)
            lanes.check()
            self._lanes = lanes

    def _divided(self, make_lanes: MakeLanes) -> Lanes:
        return make_lanes(chain_nodes(self._chain, self._given_roles), self._ctx, self)

    @property
    def lanes(self) -> Lanes | None:
        """The lanes of an asynchronous run; None before the first `run` or `load_state_dict`."""
        return self._lanes

    @property
    def division(self) -> dict[str, int]:
        """The division of collecting, see `Lanes.division`; in a synchronous run one collector does all of it."""
        if self._make_lanes is None:
            return dict(UNDIVIDED)
        return (self._lanes or self._divided(self._make_lanes)).division

    def __repr__(self) -> str:
        state = "running" if self._running else "started" if self._started else "not started"
        head = f"Task ({state}, {len(self._chain)} middleware, total_step {self._ctx.total_step})"
        if not self._chain:
            return head
        if self._make_lanes is None:
            return f"{head}\n{pipeline_view(self._chain, self._given_roles)}"
        nodes = chain_nodes(self._chain, self._given_roles)
        lanes = self._lanes or self._divided(self._make_lanes)
        return f"{head}\n{lanes.view(nodes)}"

    def _require_started(self, what: str) -> None:
        if not self._started:
            raise ChainError(f"{what}: the task has not been started; put it inside `with task.start():`")

    def _require_idle(self, what: str) -> None:
        if self._running:
            raise ChainError(f"{what}: this task is running; do it before the run, or use another Task() inside")


def _task_of_this_process() -> Task[OnlineRLContext]:
    return task


task = Task()
