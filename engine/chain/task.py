"""The task: runs a chain of middleware repeatedly, and calls its hooks however the run ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar, overload

from minding.engine.chain import lifecycle
from minding.engine.chain.check import check_chain, endless, pipeline_view
from minding.engine.chain.context import Context, ContextT, OnlineRLContext
from minding.engine.chain.events import Arguments, EventBus, Handler
from minding.engine.chain.lanes import UNDIVIDED, LaneFactory, Lanes
from minding.engine.chain.middleware import Middleware, Role, check_callable, declaration_of, name_of
from minding.engine.chain.pipeline import (
    Composite,
    Node,
    Parallel,
    Serial,
    Step,
    Teardown,
    Wrapped,
    chain_nodes,
    open_teardown,
    run_first_halves,
    run_second_halves,
)
from minding.engine.chain.trace import ProfileTable, Trace
from minding.engine.console import console_logger
from minding.engine.errors import ChainError, CheckpointError, MiddlewareError, add_note, nearest, whole_number
from minding.engine.process.signals import Interrupted, SignalGuard, raise_end
from minding.engine.types import StateDict

Wrapper = Callable[[Middleware[ContextT]], Middleware[ContextT]]
_FnContext = TypeVar("_FnContext", bound=Context)


@dataclasses.dataclass
class _Chain:
    """The middleware of a task, and the lanes into which an asynchronous run divides them; see `Task.use`."""

    make_lanes: Callable[[Sequence[Node]], Lanes] | None = None
    lanes: Lanes | None = None
    members: list[Middleware[Any]] = dataclasses.field(default_factory=list)
    roles: list[Role | None] = dataclasses.field(default_factory=list)
    optional: list[Middleware[Any]] = dataclasses.field(default_factory=list)
    wrappers: list[Wrapper[Any]] = dataclasses.field(default_factory=list)

    def add(self, fn: Middleware[Any], role: Role | None, before: str | None, optional: bool) -> None:
        """Inserts a middleware, see `Task.use`."""
        names = [name_of(each) for each in self.members]
        if before is not None and before not in names:
            raise ChainError(
                f"use(before={before!r}): the chain has no middleware of that name{nearest(before, names)}; it has "
                f"{', '.join(names) or 'none yet'}"
            )
        place = len(names) if before is None else names.index(before)
        self.members.insert(place, fn)
        self.roles.insert(place, role)
        if optional:
            self.optional.append(fn)

    def nodes(self) -> list[Node]:
        """The chain as this process runs it."""
        return chain_nodes(self.members, self.roles) if self.lanes is None else self.lanes.nodes

    def divided(self) -> Lanes | None:
        """The lanes; of a chain that is not settled, the lanes that it would have."""
        return self.lanes or (self.make_lanes and self.make_lanes(self.nodes()))

    def settle(self) -> None:
        """Divides the chain for good."""
        if self.lanes is None and (lanes := self.divided()) is not None:
            lanes.check()
            self.lanes = lanes

    def __str__(self) -> str:
        lanes, nodes = self.divided(), chain_nodes(self.members, self.roles)
        return pipeline_view(nodes) if lanes is None else lanes.view(nodes)


@dataclasses.dataclass
class _Run:
    """The loop of a task and its state, from one `start` to the next; see the properties of `Task`."""

    ctx: Any
    resume: str | Path | None = None
    profile: ProfileTable | None = None
    trace: Trace | None = None
    events: EventBus = dataclasses.field(default_factory=EventBus)
    # The second halves that wait.
    stack: list[Teardown] = dataclasses.field(default_factory=list)
    # Whether an iteration is running, or was aborted by an error; and the calls for its end.
    within: bool = False
    boundary_calls: list[Callable[[], object]] = dataclasses.field(default_factory=list)
    finish: bool = False
    signal: str | None = None
    # The signal that no task or program around this one answers.
    received: str | None = None
    stop_reason: str | None = None
    error: BaseException | None = None

    def steps(self, nodes: Sequence[Node], wrappers: Sequence[Wrapper[Any]]) -> list[Step]:
        """The middleware inside their wrappers, measured and recorded on request."""
        # A further run of the same chain adds to the existing rows.
        if self.profile is not None and len(self.profile.rows) != len(nodes):
            self.profile = ProfileTable([node.name for node in nodes])
        steps = []
        for index, node in enumerate(nodes):
            call = node.middleware
            for wrapper in wrappers:
                call = wrapper(call)
                check_callable(call, f"the wrapper {name_of(wrapper)} made of {node.name}")
            call = call if self.profile is None else self.profile.timed(index, call)
            call = call if self.trace is None else self.trace.timed(node.name, call)
            steps.append(Step(call, node.name, f"position {index}", node.declaration))
        return steps

    def begin(self, nodes: Sequence[Node]) -> None:
        """Calls the hooks before the loop, and resumes. A run that cannot do so has nothing to save."""
        lifecycle.raise_first(lifecycle.call_hooks(nodes, "begin"), "another begin hook failed too")
        if self.resume is not None:
            lifecycle.checkpointer(nodes).resume(self.resume)
            self.resume = None
            lifecycle.raise_first(lifecycle.call_hooks(nodes, "resumed", self.ctx), "another resumed hook failed too")
            self.events.emit("resumed")

    def loop(self, steps: Sequence[Step], nodes: Sequence[Node], lanes: Lanes | None, limit: int | None) -> None:
        """Runs iterations, and the hooks after them, however they end."""
        try:
            if lanes is not None:
                lanes.begin(self.trace)
            self.stop_reason = self._iterate(steps, lanes is not None, limit)
            if lanes is not None and self.signal is None:
                lanes.settle(self.ctx)
        except BaseException as error:
            self.boundary_calls.clear()
            self.stop_reason, self.error = "exception", error
            lifecycle.note_others(error, self._end(nodes), "the end of the run failed too")
            # Its traceback would keep all objects of the run alive.
            self.error = None
            raise
        lifecycle.raise_first(self._end(nodes), "another finish hook failed too")

    def _iterate(self, steps: Sequence[Step], divided: bool, limit: int | None) -> str:
        """Runs iterations; returns why it stopped."""
        stack = self.stack
        while True:
            self.events.raise_pending()
            if self.signal is not None:
                return self.signal
            if self.finish:
                return "finish"
            total_step = self.ctx.total_step
            if limit is not None and total_step >= limit:
                return "max_step"
            self.within = True
            self.ctx.begin_iteration()
            begun = self.ctx.state_dict() if divided else None
            try:
                run_first_halves(steps, self.ctx, stack, total_step)
            except Interrupted:
                # The iteration has not begun, unless a middleware before the waiting one counted something.
                self.within = self.ctx.state_dict() != begun
                self.boundary_calls.clear()
                continue
            if stack:
                run_second_halves(stack, total_step)
            self.ctx = self.ctx.renew()
            self.within = False
            while self.boundary_calls:
                call = self.boundary_calls.pop(0)
                try:
                    call()
                except BaseException as error:
                    add_note(error, f"in {name_of(call)!r} at the end of step {total_step}")
                    raise

    def _end(self, nodes: Sequence[Node]) -> list[Exception]:
        """Calls the hooks and emits ``finish``; returns the errors that occurred."""
        errors = lifecycle.call_hooks(nodes, "finish", self.ctx)
        try:
            self.events.emit("finish")
            self.events.raise_pending()
        except Exception as error:
            errors.append(error)
        return errors


class Task(Generic[ContextT]):
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
    role: ClassVar[type[Role]] = Role
    """`Role`, for ``task.role.LEARNER``."""

    def __init__(self: Task[OnlineRLContext]) -> None:
        # Whether it is started, its `with` block is open, and `run` is in progress.
        self._started = self._entered = self._running = False
        self._chain, self._run, self._roles = _Chain(), _Run(OnlineRLContext()), set[Role]()

    def __reduce__(self) -> tuple[Callable[[], Task[Any]], tuple[()]]:
        # In a worker, middleware with a reference to a task find the task of their own process.
        return _task_of_this_process, ()

    # Start and end

    @overload
    def start(
        self, async_mode: bool = False, ctx: None = None, *, lanes: object = None, profile: bool = False,
        trace: bool = False, resume: str | Path | None = None,
    ) -> Task[OnlineRLContext]: ...  # fmt: skip
    @overload
    def start(
        self, async_mode: bool = False, ctx: _FnContext = ..., *, lanes: object = None, profile: bool = False,
        trace: bool = False, resume: str | Path | None = None,
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
            or `resume` is not a path or name.
          ConfigError: `lanes` holds a value that is out of range.
        """
        if self._running:
            raise ChainError("start: this task is running; use another Task() inside a middleware")
        if ctx is not None and not isinstance(ctx, Context):
            workers = f"; processes that collect: lanes={{'collectors': {ctx}}}" if isinstance(ctx, int) else ""
            raise ChainError(f"start: ctx must be a Context object such as OnlineRLContext(), got {ctx!r}{workers}")
        if self._entered:
            raise ChainError("start: the block of an earlier start has not ended; use another Task() inside it")
        if resume is not None and not isinstance(resume, (str, Path)):
            raise ChainError(f"start: resume must be 'latest', a checkpoint folder or a run folder, got {resume!r}")
        make = type(self).lane_factory(lanes) if async_mode else None
        self._chain = _Chain(None if make is None else lambda nodes: make(nodes, self._run.ctx, self))
        measured, recorded = ProfileTable([]) if profile else None, Trace() if trace else None
        self._run = _Run(OnlineRLContext() if ctx is None else ctx, resume, measured, recorded)
        self._roles, self._started = set(), True
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
        if self._chain.lanes is not None:
            self._chain.lanes.close()
        self._run.error = error
        failed = lifecycle.call_hooks(self._chain.nodes(), "close")
        self._run.error = None
        if error is None:
            lifecycle.raise_first(failed, "closing failed too")
            raise_end(self._run.received)
        else:
            lifecycle.note_others(error, failed, "closing failed too")

    def stop(self) -> None:
        """Ends a run after the current iteration; outside a run, closes the task that `start` prepared.

        Context, chain and time table remain available until the next `start`.
        """
        if self._running:
            self._run.finish = True
        else:
            self._started = False

    @property
    def ctx(self) -> ContextT:
        """The context of the current iteration; after a run, the context of the next one."""
        ctx: ContextT = self._run.ctx
        return ctx

    @property
    def running(self) -> bool:
        """Whether `run` is in progress."""
        return self._running

    @property
    def resuming(self) -> bool:
        """Whether `start` was asked to resume and `run` has not done so yet."""
        return self._run.resume is not None

    # The chain

    def use(
        self,
        fn: Middleware[_FnContext],
        *,
        role: Role | str | None = None,
        before: str | None = None,
        optional: bool = False,
    ) -> Task[ContextT]:
        """Adds a middleware to the end of the chain, or before another one; returns the task.

        Args:
          fn: the middleware: a function of the context, a generator function with one yield, or a callable object.
          role: role of a user function that declares none; replaces a declared one.
          before: name of the middleware in front of which to insert it (the first of that name); None adds it at the
            end.
          optional: whether a checkpoint of a chain without it, or with another one in its place, may be resumed.
        Raises:
          ChainError: before `start`, during a run, or the chain has no middleware called `before`.
          MiddlewareError: `fn` is not callable, or `role` is given to a composite (its members have roles).
        """
        self._require_idle("use")
        if self._chain.lanes is not None:
            raise ChainError("use: the lanes of this asynchronous run already exist: add middleware before it runs")
        check_callable(fn, f"task.use (position {len(self.members)}) got")
        if role is not None and isinstance(fn, Composite):
            raise MiddlewareError(f"use: {fn.kind} cannot have a role; declare the roles of its members")
        self._chain.add(fn, None if role is None else Role.of(role), before, optional)
        return self

    @property
    def members(self) -> tuple[Middleware[Any], ...]:
        """The middleware of the chain, in order, as they were given to `use`."""
        return tuple(self._chain.members)

    def use_wrapper(self, wrapper: Wrapper[_FnContext]) -> Task[ContextT]:
        """Wraps every middleware, also those added later, in ``wrapper(fn) -> fn``; the first wrapper is innermost.

        The wrapped function must return the result of the middleware: a generator that is dropped never runs. Each
        middleware keeps its name, role and declaration. Members of composites are not wrapped individually.

        Raises:
          ChainError: before `start` or during a run.
          MiddlewareError: `wrapper` is not callable.
        """
        self._require_idle("use_wrapper")
        check_callable(wrapper, "task.use_wrapper got")
        self._chain.wrappers.append(wrapper)
        return self

    # Composites, and single middleware

    def serial(self, *fns: Middleware[_FnContext]) -> Middleware[_FnContext]:
        """Returns one middleware that runs these in order, their second halves in reverse."""
        return Serial(fns)

    def parallel(self, *fns: Middleware[_FnContext]) -> Middleware[_FnContext]:
        """Returns one middleware that runs the first halves of these in threads and waits for all.

        Only for middleware that wait for something; see `minding.engine.chain.pipeline.Parallel`.
        """
        return Parallel(fns, self._bus)

    def wrap(self, fn: Middleware[_FnContext]) -> Callable[[_FnContext], Teardown]:
        """Makes a middleware callable from within another one: ``back = wrapped(ctx)``, and later ``back()``.

        `back` runs the second half, if there is one. If it is never called, the second half runs with the second
        halves of the chain.
        """
        return Wrapped(fn, self._open)

    def forward(self, fn: Middleware[_FnContext], ctx: _FnContext | None = None) -> Teardown | None:
        """Runs the first half of `fn` on `ctx` (the task's own if None).

        Returns:
          Its second half, for you or `backward` to call; None if there is none.
        """
        step = Step(fn, name_of(fn), "called by task.forward", declaration_of(fn))
        return open_teardown(step.call(self.ctx if ctx is None else ctx), step, self._run.stack)

    def backward(self, *halves: Teardown) -> None:
        """Runs the given second halves, the last one first; without arguments, all that are waiting."""
        if not halves:
            run_second_halves(self._run.stack)
        for half in reversed(halves):
            half()

    # Methods, because composites that are sent to a worker find the task of their own process through them.
    def _bus(self) -> EventBus:
        return self._run.events

    def _open(self, step: Step, ctx: Any) -> Teardown:
        stack = self._run.stack
        return open_teardown(step.call(ctx), step, stack) or Teardown(None, step, stack)

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
        `start`. The end of the task's ``with`` block then raises KeyboardInterrupt, or SystemExit with the code 143, so
        that the program ends, too. A second signal ends the process at once, without hooks (see `SignalGuard`).

        Args:
          max_step: the run ends when ``ctx.total_step`` reaches this number: with 1000, a run resumed at 400 makes
            600 more iterations. None: no limit.
        Raises:
          ChainError: before `start`, during a run, without middleware, or the chain does not fit together.
          ConfigError: `max_step` is not an integer of 0 or more.
          CheckpointError: there is no checkpoint to resume from, or it does not fit this task.
          Exception: the error of a middleware, handler or hook, with a note that says where it occurred.
        """
        what = "run: max_step must be an integer of 0 or more (1000, not 1e3)"
        limit = None if max_step is None else whole_number(max_step, what)
        self._require_idle("run")
        run, chain = self._run, self._chain
        if not chain.members:
            raise ChainError("run: the chain is empty; add middleware with task.use(...) first")
        check_chain(chain.members, type(run.ctx), chain.roles)
        if limit is None and endless(chain.members):
            console_logger().warning(
                "no middleware ends this run, which continues until Ctrl-C: add "
                "termination_checker(cfg.run.max_env_step) to the chain, or call task.run(max_step=...)"
            )
        chain.settle()
        nodes = chain.nodes()
        if run.resume is not None:
            lifecycle.checkpointer(nodes)
        steps = run.steps(nodes, chain.wrappers)
        self._running, run.finish = True, False
        run.events.own(True)
        try:
            with SignalGuard(self.interrupt, "stopping after this iteration") as guard:
                run.begin(nodes)
                run.loop(steps, nodes, chain.lanes, limit)
            run.received = run.received or guard.received
        finally:
            run.events.own(False)
            self._running = False

    def renew(self) -> None:
        """Puts the context of the next iteration in place; `run` does it after each one."""
        self._run.ctx = self._run.ctx.renew()

    def at_boundary(self, fn: Callable[[], object]) -> None:
        """Calls `fn` once, when this iteration is over: both halves of all middleware ran, and `ctx` is the next.

        At that point `state_dict` is exact. If an error aborts the iteration, `fn` is not called.

        Raises:
          ChainError: no iteration is running.
        """
        if not self._run.within:
            raise ChainError("at_boundary: no iteration is running; call it from a middleware")
        self._run.boundary_calls.append(fn)

    # The end of a run, and its reason

    @property
    def finish(self) -> bool:
        """Whether the run ends after this iteration; middleware set it to True, and `run` resets it to False.

        Raises:
          ChainError: it is set to True on a task that is not started, where it would have no effect.
        """
        return self._run.finish or self._run.signal is not None

    @finish.setter
    def finish(self, value: bool) -> None:
        if value and not (self._started or self._running):
            raise ChainError(
                "task.finish: this task is not started. An Agent and `minding train` run a task of their own: a class "
                "or factory given as `use` receives it as its argument `task`, as in def __init__(self, task)"
            )
        self._run.finish = bool(value)

    @property
    def interrupted_by(self) -> str | None:
        """Name of the signal that requested the end, or None; after one, middleware skip all work that can wait."""
        return self._run.signal

    @property
    def error(self) -> BaseException | None:
        """The exception that is ending the run or its block, for the hooks `finish` and `close`; None otherwise."""
        return self._run.error

    @property
    def stop_reason(self) -> str | None:
        """Why the last run ended: ``max_step, finish, SIGINT, SIGTERM, exception``; None before that."""
        return self._run.stop_reason

    def interrupt(self, signal: str) -> None:
        """Ends the run as the signal of that name would: after this iteration, or before the next one begins."""
        self._run.signal = signal

    # Events

    def on(self, event: str, handler: Handler) -> None:
        """Calls `handler(*args, **kwargs)` at each `emit` of `event`, until `off` or the next `start`."""
        self._require_started("on")
        self._run.events.on(event, handler)

    def once(self, event: str, handler: Handler) -> None:
        """Calls `handler` at the next `emit` of `event` only."""
        self._require_started("once")
        self._run.events.once(event, handler)

    def off(self, event: str, handler: Handler | None = None) -> None:
        """Removes one registration of `handler`, or all of `event`; ChainError if there is none."""
        self._run.events.off(event, handler)

    def emit(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Calls the handlers of `event` now, in order; in other threads their errors wait for the run."""
        self._run.events.emit(event, *args, **kwargs)

    def wait_for(self, event: str, timeout: float | None = None) -> Arguments:
        """Blocks until another thread emits `event`; returns its positional and keyword arguments.

        A member of `parallel` also receives events that other members emitted since it began. The wait ends early
        when another member fails, and on a signal that ends the run.

        Args:
          event: name of the event.
          timeout: seconds; None waits forever.
        Raises:
          TimeoutError: no thread emitted the event in time.
        """
        return self._run.events.wait_for(event, timeout, lambda: self.interrupted_by is not None)

    # The roles that this process plays, for code that asks

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that `add_role` added."""
        return frozenset(self._roles)

    def add_role(self, role: Role | str) -> None:
        """Declares that this process plays `role`, for code that asks `has_role`; the chain is not changed."""
        self._roles.add(Role.of(role))

    def has_role(self, role: Role | str) -> bool:
        """Whether this process plays `role`; a task without roles plays all."""
        return not self._roles or Role.of(role) in self._roles

    # State and views

    def state_dict(self) -> StateDict:
        """Returns the kept context fields, and the chain with the state of each stateful middleware."""
        middleware = lifecycle.middleware_state(self._chain.nodes(), self._chain.optional)
        return {"ctx": self.ctx.state_dict(), "division": self.division, **middleware}

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
        self._chain.settle()
        lifecycle.check_division(self.division, state["division"])
        nodes, optional = self._chain.nodes(), self._chain.optional
        lifecycle.check_chain_state(nodes, state, optional)
        self.ctx.load_state_dict(state["ctx"])
        lifecycle.load_middleware_state(nodes, state, optional)

    @property
    def within_iteration(self) -> bool:
        """Whether an iteration is running, or was aborted by an error; see `at_boundary`."""
        return self._run.within

    @property
    def resume_guarantee(self) -> str:
        """The guarantee for a run that resumes from the present `state_dict`: the weakest of `lifecycle.GUARANTEES`."""
        return lifecycle.weakest_guarantee(self._chain.nodes(), self._run.within)

    @property
    def lanes(self) -> Lanes | None:
        """The lanes of an asynchronous run; None before the first `run` or `load_state_dict`."""
        return self._chain.lanes

    @property
    def division(self) -> dict[str, int]:
        """The division of collecting, see `Lanes.division`; in a synchronous run one collector does all of it."""
        lanes = self._chain.divided()
        return dict(UNDIVIDED) if lanes is None else lanes.division

    def write_trace(self, path: str | Path) -> None:
        """Writes the timeline of the run in the Chrome trace format, one row per lane.

        Raises:
          ChainError: the task was not started with ``trace=True``.
        """
        if self._run.trace is None:
            raise ChainError("write_trace: nothing was recorded; start with task.start(..., trace=True)")
        self._run.trace.write(path)

    def profile(self) -> str:
        """Returns the time of each middleware as a table.

        Raises:
          ChainError: the task was not started with ``profile=True``.
        """
        if self._run.profile is None:
            raise ChainError("profile: nothing was measured; start with task.start(..., profile=True)")
        return str(self._run.profile)

    def __repr__(self) -> str:
        state = "running" if self._running else "started" if self._started else "not started"
        head = f"Task ({state}, {len(self.members)} middleware, total_step {self.ctx.total_step})"
        return f"{head}\n{self._chain}" if self.members else head

    def _require_started(self, what: str) -> None:
        if not self._started:
            raise ChainError(f"{what}: the task has not been started; put it inside `with task.start():`")

    def _require_idle(self, what: str) -> None:
        self._require_started(what)
        if self._running:
            raise ChainError(f"{what}: this task is running; do it before the run, or use another Task() inside")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Only called when the usual look-up fails.
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            raise AttributeError(f"there is no task.{name}{nearest(name, known)}")


def _task_of_this_process() -> Task[OnlineRLContext]:
    return task


task = Task()
