"""Middleware, and the declarations of their roles and of the context fields that they touch."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from minding.engine.chain.context import ContextT
from minding.engine.errors import ConfigError, MiddlewareError, nearest

Middleware: TypeAlias = Callable[[ContextT], object]
"""``(ctx) -> None``, or a generator function ``(ctx)`` with one ``yield``: code after it runs, in reverse
order of the chain, once the rest of the chain has finished. Optional attributes of a middleware object:

- ``declaration``: see `declare`.
- ``finish(ctx)``: called once when a run ends, however it ends, in the order of the chain.
- ``close()``: called once at the end of ``with task.start(...)``; releases what the middleware holds.
- ``state_dict()`` and ``load_state_dict(state)``: takes part in checkpoints.
- ``resume_guarantee``: how well its state can be restored, see `engine.chain.lifecycle.GUARANTEES`.
- ``resumed(ctx)``: called once after all state was restored.
- ``due(ctx) -> bool`` (role evaluate): whether it would do anything; asked before a snapshot is taken for it in an
  asynchronous run.
- ``staleness`` (role learn): how many iterations old the weights that collected its data may be; the
  default of ``max_staleness`` in an asynchronous run.
- ``bounded``, ``cannot_insert(rollouts) -> str | None`` (role learn): whether a limiter may forbid what it inserts, and
  why it cannot insert these rollouts of an iteration now, None if it can; asked with ``lanes.order=arrival``.
- ``cannot_learn(ctx) -> str | None`` (role learn): why it cannot learn in an iteration without a rollout, None if it
  can; asked likewise.
- ``requirements() -> Sequence[str]``: problems found in what the middleware was given, as readable sentences;
  the chain check refuses to start with any.
- ``clashes(chain) -> Sequence[str]``: likewise, problems with the other middleware of the chain.
"""
SecondHalf = Generator[None, None, None]
"""What a generator middleware returns."""

_PARTS = {
    "CollectMode": ("record_fields", "policy.collect_mode"),
    "LearnMode": ("fields", "policy.learn_mode"),
    "EvalMode": ("reset", "policy.eval_mode"),
    "Policy": ("state_dict", "the policy itself"),
    "JudgedPolicy": ("action_values", "the policy itself"),
    "EnvManager": ("num_envs", "environments, as make_collector_env(cfg) returns them"),
    "FilledBuffer": ("push", "a buffer, such as ReplayBuffer"),
    "SampledBuffer": ("sample", "a buffer, such as ReplayBuffer"),
}
"""By the type of an argument of minding's own middleware: an attribute that it has, and what to give."""
_T = TypeVar("_T", bound=Callable[..., Any])


class Role(str, enum.Enum):
    """The part of a middleware in the loop; it decides in which lane of an asynchronous run the middleware runs.

    `COLLECTOR`, `LEARNER` and `EVALUATOR` are aliases of the three.
    """

    COLLECT = "collect"
    LEARN = "learn"
    EVALUATE = "evaluate"
    COLLECTOR = "collect"
    LEARNER = "learn"
    EVALUATOR = "evaluate"

    @classmethod
    def of(cls, role: Role | str) -> Role:
        """Returns the member for a name such as ``"collect"``.

        Raises:
          MiddlewareError: there is no such role.
        """
        names = [member.value for member in cls]
        if role in names:
            return cls(role)
        if isinstance(role, str) and role.upper() in cls.__members__:
            return cls[role.upper()]
        raise MiddlewareError(f"role {role!r} is not one of {', '.join(names)}{nearest(str(role), names)}")


@dataclasses.dataclass(frozen=True)
class Declaration:
    """The declaration of a middleware: its role and fields."""

    name: str
    role: Role | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()


def declare(
    role: Role | str | None = None,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    optional: Sequence[str] = (),
    leaves: Sequence[str] = (),
    refuses: Sequence[str] = (),
) -> Callable[[_T], _T]:
    """Declares role and touched fields, on a factory function or on a class whose instances are middleware.

    ::

        @declare(role="collect", reads=("env_step",), writes=("collect_kwargs",))
        def eps_greedy_handler(cfg):
            def handle(ctx): ...
            return handle

    The name is taken from the factory or class. See `Declaration` for the arguments.

    Raises:
      MiddlewareError: the role is unknown, fields are not tuples of names, or `leaves` or `refuses` names a field that
        is not declared. Calling the factory raises it, too: for arguments that the factory does not have, and if the
        result cannot carry a declaration.
    """

    def decorate(target: _T) -> _T:
        if any(isinstance(names, str) for names in (reads, writes, optional, leaves, refuses)):
            raise MiddlewareError(f"{target.__name__}: fields are declared as tuples of names, not as a string")
        fields = {*reads, *writes, *optional}
        for state in (*leaves, *refuses):
            if state.partition(".")[0] not in fields or not state.partition(".")[2]:
                raise MiddlewareError(
                    f"{target.__name__}: leaves and refuses must name a field that it reads or writes, as "
                    f"'trajectories.summed', got {state!r}"
                )
        declaration = Declaration(
            name=target.__name__,
            role=None if role is None else Role.of(role),
            reads=tuple(reads),
            writes=tuple(writes),
            optional=tuple(optional),
            leaves=tuple(leaves),
            refuses=tuple(refuses),
        )
        if inspect.isclass(target):
            cast(Any, target).declaration = declaration
            cast(Any, target).__init__ = _checked(target.__init__, declaration.name)
            return target
        return cast(_T, _declared_factory(_checked(target, declaration.name), declaration))

    return decorate


def _checked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wraps a factory or constructor: for wrong arguments it raises an error that lists the right ones."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    # Names only, with the star before those that cannot be positional.
    bare = [each.replace(annotation=each.empty, default=each.empty) for each in parameters]
    takes, own = inspect.Signature(bare), str(getattr(function, "__module__", "")).startswith("minding.")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise MiddlewareError(f"{name}: {error}; it takes {takes}") from None
        for each, value in given.items():
            annotation = signature.parameters[each].annotation
            known = _PARTS.get(getattr(annotation, "__name__", annotation))
            if own and known and not hasattr(value, known[0]):
                raise MiddlewareError(f"{name}: {each} must be {known[1]}, got a {type(value).__name__}")
        try:
            return function(*args, **kwargs)
        except AttributeError as error:
            for value in given.values():
                if isinstance(value, dict) and (problem := _no_such_setting(value, error)):
                    raise ConfigError(f"{name} {problem}") from error
            raise

    return call


def _no_such_setting(cfg: Mapping[str, Any], error: AttributeError) -> str | None:
    """What a middleware looked for in a configuration that does not have it; None if the error is about something else.
    An algorithm's settings are those that its own chain reads."""
    section = error.obj
    path = _path_of(section, cfg)
    if path is None or error.name is None or not isinstance(section, dict):
        return None
    if error.name in section or error.name == "read":
        return f"got a {type(cfg).__name__} as its configuration: give it what compile_run returns, or Config(...)"
    algorithm = cfg.get("policy", {}).get("type")
    return (
        f"reads {'.'.join((*path, error.name))}, which the settings of policy.type={algorithm!r} do not have: it "
        "belongs in the chain of another algorithm"
    )


def _path_of(section: object, tree: Mapping[str, Any]) -> tuple[str, ...] | None:
    if section is tree:
        return ()
    for key, value in tree.items():
        below = _path_of(section, value) if isinstance(value, dict) else None
        if below is not None:
            return (key, *below)
    return None


def _declared_factory(factory: Callable[..., Any], declaration: Declaration) -> Callable[..., Any]:
    """Wraps a factory so that what it returns carries the declaration."""

    @functools.wraps(factory)
    def build(*args: Any, **kwargs: Any) -> Any:
        middleware = factory(*args, **kwargs)
        check_callable(middleware, f"the middleware factory {declaration.name} returned")
        own = declaration_of(middleware)
        if own is not None and own.name == declaration.name:
            # Its fields depend on its arguments, so the object itself declares them.
            return middleware
        try:
            middleware.declaration = declaration
        except AttributeError as error:
            raise MiddlewareError(
                f"{declaration.name} returned a {type(middleware).__name__}, which cannot carry a "
                "declaration; return a function defined inside the factory"
            ) from error
        return middleware

    cast(Any, build).declaration = declaration
    return build


def declaration_of(middleware: Middleware[Any]) -> Declaration | None:
    """Returns what the middleware declares, None for plain user functions."""
    declaration = getattr(middleware, "declaration", None)
    return declaration if isinstance(declaration, Declaration) else None


def name_of(middleware: object) -> str:
    """Returns a readable name for any callable, also for partials and instances without ``__name__``."""
    declaration = getattr(middleware, "declaration", None)
    if isinstance(declaration, Declaration):
        return declaration.name
    if isinstance(middleware, functools.partial):
        return name_of(middleware.func)
    name = getattr(middleware, "__name__", None)
    return name if isinstance(name, str) else type(middleware).__name__


def check_callable(middleware: object, source: str) -> None:
    """Raises MiddlewareError unless `middleware` can be called with a context; `source` begins the message."""
    if isinstance(middleware, type):
        name = middleware.__name__
        raise MiddlewareError(f"{source} the class {name}; a middleware is what it makes: {name}(...)")
    if not callable(middleware):
        raise MiddlewareError(
            f"{source} {middleware!r} of type {type(middleware).__name__}; a middleware is a callable "
            "(ctx) -> None or a generator function with one yield"
        )
