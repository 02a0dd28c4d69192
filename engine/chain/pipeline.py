"""Middleware at their places in a chain: what runs (first halves in order, second halves in reverse, alone or
composed), and what a check or a view sees of them (`Node`)."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import GeneratorType
from typing import Any

from minding.engine.chain.events import EventBus, WaitCancelled
from minding.engine.chain.middleware import (
    Declaration,
    Middleware,
    Role,
    SecondHalf,
    check_callable,
    declaration_of,
    name_of,
)
from minding.engine.errors import FieldError, MiddlewareError, add_note, notes_of
from minding.engine.process.signals import Interrupted


class Step:
    """A middleware at its place, ready to be called."""

    __slots__ = ("call", "declaration", "name", "place")

    def __init__(self, call: Middleware[Any], name: str, place: str, declaration: Declaration | None) -> None:
        self.call = call
        self.name = name
        self.place = place
        self.declaration = declaration


class Teardown:
    """The second half of a middleware, waiting on a stack. Calling it removes and runs it, once only."""

    __slots__ = ("_generator", "_stack", "step")

    def __init__(self, generator: SecondHalf | None, step: Step, stack: list[Teardown]) -> None:
        self._generator = generator
        self._stack = stack
        self.step = step

    def __call__(self) -> None:
        """Takes the second half off its stack and runs it, unless it has run or there is none."""
        if self._generator is not None:
            self._stack.remove(self)
            self.run()

    def run(self) -> None:
        """Runs the second half of a middleware that is no longer on any stack."""
        generator, self._generator = self._generator, None
        if generator is None:
            return
        try:
            next(generator)
        except StopIteration:
            return
        generator.close()
        raise MiddlewareError(
            f"middleware {self.step.name!r} ({self.step.place}) yields twice; a middleware has at most one "
            "yield: the part before it runs in order, the part after it in reverse order"
        )

    def close(self) -> None:
        """Ends the middleware at its ``yield``: the second half does not run, ``finally`` blocks do."""
        generator, self._generator = self._generator, None
        if generator is not None:
            generator.close()

    def move_to(self, stack: list[Teardown]) -> None:
        """Puts the half on top of another stack, which runs it from now on."""
        if self._generator is not None and stack is not self._stack:
            self._stack.remove(self)
            stack.append(self)
            self._stack = stack


def open_teardown(result: object, step: Step, stack: list[Teardown]) -> Teardown | None:
    """Starts the result of calling a middleware, if it is a generator, and puts its second half on the stack."""
    if isinstance(result, GeneratorType):
        try:
            next(result)
        except StopIteration:
            return None
        half = Teardown(result, step, stack)
        stack.append(half)
        return half
    if isinstance(result, Teardown):
        result.move_to(stack)
        return result
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # Else Python warns that it was never awaited.
        raise MiddlewareError(f"middleware {step.name!r} ({step.place}) is async; use a plain function")
    if callable(result):
        raise MiddlewareError(
            f"middleware {step.name!r} ({step.place}) returned a function: it looks like a factory; use what "
            f"it returns, {step.name}(...), and not the factory itself"
        )
    # The value of a lambda is the value of its expression, which has no meaning here.
    if result is None or step.name == "<lambda>":
        return None
    shown = textwrap.shorten(repr(result), 80)
    raise MiddlewareError(
        f"middleware {step.name!r} ({step.place}) returned {shown}, which "
        "nothing would read: a middleware returns None; write values for other middleware to a field of ctx"
    )


def run_first_halves(steps: Sequence[Step], ctx: Any, stack: list[Teardown], total_step: int | None = None) -> None:
    """Calls the steps in order. If one fails, the open halves on the stack are closed in reverse order."""
    step: Step | None = None
    try:
        for step in steps:
            result = step.call(ctx)
            if result is not None:
                open_teardown(result, step, stack)
    except BaseException as error:
        if step is not None:
            add_note(error, f"in middleware {_where(step, total_step)}")
            if isinstance(error, FieldError):
                _note_writers(error, steps[: list(steps).index(step)])
        note_failed_closing(error, close_all(stack))
        raise


def _note_writers(error: FieldError, before: Sequence[Step]) -> None:
    """Says which of the steps before may have written the field."""
    writers = [_where(step) for step in before if step.declaration is None or error.field in step.declaration.writes]
    if writers:
        add_note(error, f"ctx.{error.field} may have been set by {', '.join(writers)}; the last one counts")


def run_second_halves(stack: list[Teardown], total_step: int | None = None) -> None:
    """Runs the halves on the stack in reverse order. If one fails, the rest is closed."""
    while stack:
        half = stack.pop()
        try:
            half.run()
        except BaseException as error:
            add_note(error, f"in the second half of middleware {_where(half.step, total_step)}")
            note_failed_closing(error, close_all(stack))
            raise


def close_all(stack: list[Teardown]) -> list[Exception]:
    """Closes the halves on the stack in reverse order; returns the errors that occurred."""
    errors: list[Exception] = []
    while stack:
        half = stack.pop()
        try:
            half.close()
        except Exception as error:
            add_note(error, f"while middleware {_where(half.step)} was closed")
            errors.append(error)
    return errors


def note_failed_closing(cause: BaseException, errors: Sequence[Exception]) -> None:
    """Attaches errors of `close_all` as notes to the error that was the reason to close."""
    for error in errors:
        add_note(cause, f"closing the chain failed too: {error!r} ({'; '.join(notes_of(error))})")


def _where(step: Step, total_step: int | None = None) -> str:
    return f"{step.name!r} ({step.place}{'' if total_step is None else f', step {total_step}'})"


class Composite:
    """A middleware made of others; the chain check and the pipeline view look into `members`."""

    kind: str = ""

    def __init__(self, members: Sequence[Middleware[Any]]) -> None:
        for member in members:
            check_callable(member, f"{self.kind} got")
        self.members = tuple(members)
        self._steps = [
            Step(member, name_of(member), f"member {index} of {self.kind}", declaration_of(member))
            for index, member in enumerate(members)
        ]

    @property
    def __name__(self) -> str:
        return self.kind

    def _closing(self, stack: list[Teardown]) -> Generator[None, None, None]:
        """Yields once and then runs the second halves; closes them instead if the generator is closed."""
        try:
            yield
        except GeneratorExit:
            errors = close_all(stack)
            if errors:
                raise errors[0] from None
            raise
        run_second_halves(stack)


class Serial(Composite):
    """Runs its members one after the other, as one middleware."""

    kind = "serial"

    def __call__(self, ctx: Any) -> SecondHalf:
        stack: list[Teardown] = []
        run_first_halves(self._steps, ctx, stack)
        yield from self._closing(stack)


class Parallel(Composite):
    """Runs the first halves of its members at the same time, in threads, and continues when all have ended.

    For middleware that wait (files, networks, simulators). One thread owns MindSpore: at most one member may
    have a role, and it runs in the calling thread. Second halves run in the calling thread in reverse order
    of the members. An event that one member emits reaches another that waits for it, even if the wait begins later.
    When a member fails, the others stop waiting (`EventBus.wait_for`), and its exception is raised once all have ended.
    """

    kind = "parallel"

    def __init__(self, members: Sequence[Middleware[Any]], events: Callable[[], EventBus]) -> None:
        super().__init__(members)
        self._events = events
        self._own_index = next((index for index, member in enumerate(members) if has_role(member)), 0)

    def __call__(self, ctx: Any) -> SecondHalf:
        stack: list[Teardown] = []
        if self._steps:
            self._run_members(ctx, stack)
        yield from self._closing(stack)

    def _run_members(self, ctx: Any, stack: list[Teardown]) -> None:
        # One stack per member, so that the order does not depend on the speed of threads.
        stacks: list[list[Teardown]] = [[] for _ in self._steps]
        bus = self._events()
        with bus.gather() as gathering, ThreadPoolExecutor(len(self._steps)) as pool:

            def attempt(index: int) -> BaseException | None:
                with bus.join(gathering):
                    try:
                        run_first_halves([self._steps[index]], ctx, stacks[index])
                    except BaseException as error:
                        gathering.fail()
                        return error
                return None

            others = [index for index in range(len(stacks)) if index != self._own_index]
            futures = {index: pool.submit(attempt, index) for index in others}
            own_outcome = attempt(self._own_index)
        outcomes = [futures[index].result() if index in futures else own_outcome for index in range(len(stacks))]
        for member_stack in stacks:
            for half in list(member_stack):
                half.move_to(stack)
        error = _reason(outcomes, bus)
        if error is not None:
            note_failed_closing(error, close_all(stack))
            raise error


def _reason(outcomes: Sequence[BaseException | None], bus: EventBus) -> BaseException | None:
    """The reason why a parallel failed: a member's error, if there is one, and not the cancelled waits of others."""
    errors = sorted(filter(None, outcomes), key=lambda error: isinstance(error, (Interrupted, WaitCancelled)))
    if not errors:
        return None
    if isinstance(errors[0], WaitCancelled):
        try:
            bus.raise_pending()
        except Exception as pending:
            return pending
    for other in errors[1:]:
        if not isinstance(other, (Interrupted, WaitCancelled)):
            add_note(errors[0], f"another member of parallel failed too: {other!r}")
    return errors[0]


class Wrapped(Composite):
    """A middleware to be called from within another; the call returns its second half, to be called later.

    If it is not called, it runs with the second halves of the chain.
    """

    kind = "wrap"

    def __init__(self, member: Middleware[Any], forward: Callable[[Step, Any], Teardown]) -> None:
        super().__init__([member])
        self._forward = forward

    def __call__(self, ctx: Any) -> Teardown:
        return self._forward(self._steps[0], ctx)


def has_role(middleware: Middleware[Any]) -> bool:
    """Whether the middleware, or one inside it, declares a role."""
    if isinstance(middleware, Composite):
        return any(has_role(member) for member in middleware.members)
    declaration = declaration_of(middleware)
    return declaration is not None and declaration.role is not None


@dataclasses.dataclass(frozen=True)
class Node:
    """A middleware at its place in the chain."""

    middleware: Middleware[Any]
    position: str
    name: str
    role: Role | None
    declaration: Declaration | None
    members: tuple[Node, ...] = ()

    def leaves(self) -> Iterator[Node]:
        """Yields the middleware that are not composites, in order."""
        if self.members or isinstance(self.middleware, Composite):
            for member in self.members:
                yield from member.leaves()
        else:
            yield self

    def walk(self) -> Iterator[Node]:
        """Yields this node and all below it, in order."""
        yield self
        for member in self.members:
            yield from member.walk()


def chain_nodes(chain: Sequence[Middleware[Any]], roles: Sequence[Role | None] | None = None) -> list[Node]:
    """Lays out a chain, including the members of `serial`, `parallel` and `wrap`."""
    given = roles if roles is not None else [None] * len(chain)
    return [_node(middleware, str(index), given[index]) for index, middleware in enumerate(chain)]


def _node(middleware: Middleware[Any], position: str, role: Role | None) -> Node:
    declaration = None if isinstance(middleware, Composite) else declaration_of(middleware)
    members: tuple[Middleware[Any], ...] = middleware.members if isinstance(middleware, Composite) else ()
    return Node(
        middleware=middleware,
        position=position,
        name=name_of(middleware),
        role=role or (declaration.role if declaration else None),
        declaration=declaration,
        members=tuple(_node(member, f"{position}.{index}", None) for index, member in enumerate(members)),
    )


def all_leaves(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields the middleware of a chain that are not composites, in order."""
    for node in nodes:
        yield from node.leaves()
