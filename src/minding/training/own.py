"""Middleware that settings name: `use`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from minding.engine.chain.middleware import Role
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.named import is_named, load_code
from minding.engine.errors import ConfigError, MiddlewareError, nearest

_KEYS = ("call", "before", "role")


class Own(NamedTuple):
    """What an entry of `use` stands for."""

    made: Any
    before: str | None
    role: Role | None


def own_middleware(entry: Any) -> Own:
    """Reads an entry of `use`, and imports what it names.

    Raises:
      ConfigError: it is neither ``'module:Name'`` nor a section with `call`, or there is no such code or role.
    """
    section: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"call": entry}
    for key in section:
        if key not in _KEYS:
            raise ConfigError(f"use: unknown key {key!r}{nearest(key, _KEYS)}; expected {', '.join(_KEYS)}")
    if not is_named(section.get("call")):
        raise ConfigError(f"use: {entry!r}: expected 'module:Name', or {{call: 'module:Name', before: ..., role: ...}}")
    made = load_code(section["call"], "use")
    if not callable(made):
        raise ConfigError(f"use: {section['call']} is {made!r}: expected a middleware, or what makes one")
    try:
        role = None if section.get("role") is None else Role.of(section["role"])
    except MiddlewareError as error:
        raise ConfigError(f"use: {section['call']}: {error}") from None
    return Own(made, section.get("before"), role)


def add_own(task: Task, cfg: Config, entry: Any) -> None:
    """Adds an entry of `use` to the chain.

    A function whose argument is `ctx` is a middleware itself. Anything else makes one, given the configuration if it
    takes an argument, and the task if one of its arguments is called so.
    """
    own = own_middleware(entry)
    task.use(_make(own.made, task, cfg), before=own.before, role=own.role)


def _make(made: Any, task: Task, cfg: Config) -> Any:
    parameters = inspect.signature(made).parameters
    if inspect.isfunction(made) and [*parameters][:1] == ["ctx"]:
        return made
    needed = [each for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    own = [each for each in needed if each.name != "task"]
    arguments = (cfg,) if own else ()
    return made(*arguments, task=task) if "task" in parameters else made(*arguments)
