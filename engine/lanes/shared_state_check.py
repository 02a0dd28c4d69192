"""Refuses functions of a lane that keep state outside of the context: in a worker, what surrounds a function is a copy
that nothing else sees."""

import collections
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minding.engine.chain.middleware import declaration_of, name_of
from minding.engine.errors import ChainError

_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_LONG = 1000  # entries; of longer containers only the length is compared
_NOTHING = object()


class SharedStateCheck:
    """Finds out whether functions change variables around them (`nonlocal`, `global`, or the entries of a list, dict or
    set), and objects their own attributes.

    Library middleware, and objects with `state_dict`, may: their state belongs to the lane and to its checkpoints.
    """

    def __init__(self, members: Sequence[Any], lane: str) -> None:
        self._lane = lane
        self._variables = [
            (name_of(member), variable, read, _contents(read()))
            for member in members
            for variable, read in _variables(_function(member))
        ]
        owners = [(name_of(member), getattr(member, "__self__", member)) for member in members]
        self._objects = [(name, vars(owner), {**vars(owner)}) for name, owner in owners if _is_plain(owner)]

    def check(self) -> None:
        """Compares with the initial contents."""
        for name, variable, read, before in self._variables:
            if _differ(before, _contents(read())):
                raise ChainError(
                    f"{name} changes {variable!r}, a variable outside the function, and runs in the {self._lane} lane: "
                    "there the variable is a copy, which nothing else sees. Write to a field of the context that it "
                    "declares, or send it with task.emit, or use the function without a role, so that it stays in the "
                    "main process"
                )
        for name, now, earlier in self._objects:
            for attribute in {**earlier, **now}:
                if now.get(attribute, _NOTHING) is not earlier.get(attribute, _NOTHING):
                    raise ChainError(
                        f"{name} changes its attribute {attribute!r} and runs in the {self._lane} lane: there it is a "
                        "copy, which nothing else sees. Write to a field of the context that it declares, or send it "
                        "with task.emit, or use it without a role, so that it stays in the main process, or give it "
                        "state_dict() and load_state_dict: then the lane keeps it"
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


def _variables(function: types.FunctionType | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The variables outside a function that it, or a function inside it, uses, each with a function that reads it."""
    if function is None:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        yield name, functools.partial(_in_cell, cell)
    for name in dict.fromkeys(_names(function.__code__)):
        yield name, functools.partial(function.__globals__.get, name, _NOTHING)


def _in_cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Not assigned yet.
        return _NOTHING


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _contents(value: Any) -> tuple[Any, int, list[Any]]:
    """The value itself and, of a container, its size and its entries."""
    if not isinstance(value, _CONTAINERS):
        return value, 0, []
    size = len(value)
    if size > _LONG:
        return value, size, []
    return value, size, [*value, *value.values()] if isinstance(value, dict) else [*value]


def _differ(one: tuple[Any, int, list[Any]], other: tuple[Any, int, list[Any]]) -> bool:
    return one[0] is not other[0] or one[1] != other[1] or any(a is not b for a, b in zip(one[2], other[2]))
