"""State of functions that is not sent: variables around a function are copies in a worker."""

from __future__ import annotations

import collections
import dis
import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any

from minding.engine.chain.middleware import declaration_of, name_of
from minding.engine.chain.pipeline import Node
from minding.engine.errors import ChainError

_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_LONG = 1000  # entries; of longer containers only the length is compared
_NOTHING = object()
_STORES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF")


def check_assignments(leaves: Sequence[Node], lane: str) -> None:
    """Refuses functions that assign to variables around them (`nonlocal`, `global`).

    Raises:
      ChainError: with the name of the variable and what to do.
    """
    for leaf in leaves:
        function = _function(leaf.middleware)
        names = sorted(set(_assigned(function.__code__))) if function is not None else []
        if names:
            raise ChainError(f"{leaf.name} at position {leaf.position} {_stays(f'assigns to {names[0]!r}', lane)}")


class Watch:
    """Finds out whether functions change lists, dicts or sets around them, and objects their own attributes.

    Library middleware, and objects with `state_dict`, may: their state belongs to the lane and to its checkpoints.

    Args:
      members: the middleware of a lane that are not composites.
      lane: name of the lane for messages.
    """

    def __init__(self, members: Sequence[Any], lane: str) -> None:
        self._lane = lane
        self._watched = [
            (name_of(member), variable, container, _contents(container))
            for member in members
            for variable, container in _containers(_function(member))
        ]
        owners = [(name_of(member), getattr(member, "__self__", member)) for member in members]
        self._objects = [(name, vars(owner), {**vars(owner)}) for name, owner in owners if _is_plain(owner)]

    def check(self) -> None:
        """Compares with the initial contents.

        Raises:
          ChainError: a function has changed something.
        """
        for name, variable, container, before in self._watched:
            if _differ(before, _contents(container)):
                raise ChainError(f"{name} {_stays(f'changes {variable!r}', self._lane)}")
        for name, now, earlier in self._objects:
            for attribute in {**earlier, **now}:
                if now.get(attribute, _NOTHING) is not earlier.get(attribute, _NOTHING):
                    raise ChainError(f"{name} {_forgets(attribute, self._lane)}")


def _stays(what: str, lane: str) -> str:
    return (
        f"{what}, a variable outside the function, and runs in the {lane} lane: there the variable is a copy, which "
        "nothing else sees. Write to a field of the context that it declares, or send it with task.emit, or use the "
        "function without a role, so that it stays in the main process"
    )


def _forgets(attribute: str, lane: str) -> str:
    return (
        f"changes its attribute {attribute!r} and runs in the {lane} lane: there it is a copy, which nothing else "
        "sees. Write to a field of the context that it declares, or send it with task.emit, or use it without a role, "
        "so that it stays in the main process, or give it state_dict() and load_state_dict: then the lane keeps it"
    )


def _is_plain(middleware: Any) -> bool:
    """Whether it is an object of a user's class that has attributes but no `state_dict`."""
    if isinstance(middleware, (types.FunctionType, functools.partial)) or declaration_of(middleware) is not None:
        return False
    return hasattr(middleware, "__dict__") and not hasattr(middleware, "state_dict")


def _function(middleware: Any) -> types.FunctionType | None:
    while isinstance(middleware, functools.partial):
        middleware = middleware.func
    return middleware if isinstance(middleware, types.FunctionType) else None


def _assigned(code: types.CodeType) -> Iterator[str]:
    """Names of variables outside of a function that it, or a function inside it, assigns to."""
    for instruction in dis.get_instructions(code):
        # Its own cells are shared only with functions inside it.
        if instruction.opname in _STORES and instruction.argval not in code.co_cellvars:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from (name for name in _assigned(constant) if name not in code.co_cellvars)


def _containers(function: types.FunctionType | None) -> Iterator[tuple[str, Any]]:
    if function is None:
        return
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    for name, cell in cells:
        try:
            value = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
        if isinstance(value, _CONTAINERS):
            yield name, value
    for name in function.__code__.co_names:
        if isinstance(function.__globals__.get(name), _CONTAINERS):
            yield name, function.__globals__[name]


def _contents(container: Any) -> tuple[int, list[Any]]:
    size = len(container)
    if size > _LONG:
        return size, []
    return size, [*container, *container.values()] if isinstance(container, dict) else [*container]


def _differ(one: tuple[int, list[Any]], other: tuple[int, list[Any]]) -> bool:
    return one[0] != other[0] or any(a is not b for a, b in zip(one[1], other[1]))
