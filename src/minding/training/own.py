"""The user's own middleware, named in settings or passed to a call."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from minding.engine.blame import building
from minding.engine.chain.middleware import Role
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.named import is_named, load_code
from minding.engine.errors import ConfigError, MiddlewareError, nearest

_KEYS = ("call", "before", "role")
Given: TypeAlias = Callable[..., object] | Iterable[Callable[..., object]]
"""Type of the argument `use`: a middleware, a class or factory that makes a middleware, or several of these."""


class Own(NamedTuple):
    """An entry of `use`, read and imported."""

    made: Any
    before: str | None
    role: Role | None


def own_middleware(entry: Any) -> Own:
    """Reads an entry of `use`, and imports the code that it names.

    Raises:
      ConfigError: the entry is neither ``'module:Name'`` nor a section with `call`, or the code or role does not exist.
    """
    section: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"call": entry}
    for key in section:
        if key not in _KEYS:
            raise ConfigError(f"use: unknown key {key!r}{nearest(key, _KEYS)}; expected {', '.join(_KEYS)}")
    if not is_named(section.get("call")):
        raise ConfigError(f"use: {entry!r}: expected 'module:Name', or {{call: 'module:Name', before: ..., role: ...}}")
    made = load_code(section["call"], "use")
    if not callable(made):
        raise ConfigError(f"use: {section['call']} is {made!r}: expected a middleware, or a function that makes one")
    try:
        role = None if section.get("role") is None else Role.of(section["role"])
    except MiddlewareError as error:
        raise ConfigError(f"use: {section['call']}: {error}") from None
    return Own(made, section.get("before"), role)


def add_own(task: Task, cfg: Config, entry: Any) -> None:
    """Adds an entry of `use` to the chain.

    A function whose argument is named `ctx` is a middleware itself. Anything else is a factory: it is called with the
    configuration if it takes an argument, and with the task if one of its arguments is named `task`.
    """
    own = own_middleware(entry)
    with building(f"use: {entry!r}: making it"):
        made = _make(own.made, task, cfg)
    task.use(made, before=own.before, role=own.role, optional=True)


def given_middleware(use: object) -> tuple[Any, ...]:
    """The middleware, or factories of middleware, in the argument `use` of a call, in order.

    Raises:
      ConfigError: `use` is neither a middleware nor a list of middleware, or an item cannot be called.
    """
    members = (use,) if callable(use) else use
    if isinstance(members, (str, Mapping)) or not isinstance(members, Iterable):
        raise ConfigError(f"use={use!r}: expected a middleware, a function that makes one, or a list of them")
    members = tuple(members)
    for each in members:
        if not callable(each):
            raise ConfigError(f"use: {each!r} cannot be called: expected a middleware, or a class that makes one")
    return members


def add_given(task: Task, cfg: Config, given: Any) -> None:
    """Adds an entry of the argument `use` of a call to the chain.

    A class, or a function whose return annotation is `Middleware`, is a factory, as in `add_own`; anything else is a
    middleware."""
    makes = inspect.isclass(given) or (inspect.isfunction(given) and _says_middleware(given))
    task.use(_make(given, task, cfg) if makes else given, optional=True)


def _says_middleware(function: Any) -> bool:
    returned = inspect.signature(function).return_annotation
    if isinstance(returned, str):
        return returned.split("[")[0].split(".")[-1] == "Middleware"
    return typing.get_origin(returned) is Callable


def _make(made: Any, task: Task, cfg: Config) -> Any:
    parameters = inspect.signature(made).parameters
    if inspect.isfunction(made) and [*parameters][:1] == ["ctx"]:
        return made
    needed = [each for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    own = [each for each in needed if each.name != "task"]
    arguments = (cfg,) if own else ()
    return made(*arguments, task=task) if "task" in parameters else made(*arguments)
