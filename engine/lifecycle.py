"""What is done with a chain outside its loop: state for checkpoints, and hooks at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minding.engine.chain import Node
from minding.engine.context import Context
from minding.engine.errors import CheckpointError
from minding.engine.notes import add_note
from minding.engine.types import StateDict, Stateful


def middleware_state(nodes: Iterable[Node]) -> StateDict:
    """Returns ``{"<position>:<name>": state}`` of every middleware that is `Stateful`."""
    return {key: member.state_dict() for key, member in _stateful(nodes).items()}


def load_middleware_state(nodes: Iterable[Node], state: StateDict) -> None:
    """Hands each middleware its part of what `middleware_state` returned.

    Raises:
      CheckpointError: the chain is another one than was saved; nothing is loaded then.
    """
    members = _stateful(nodes)
    missing, unknown = sorted(members.keys() - state.keys()), sorted(state.keys() - members.keys())
    if missing or unknown:
        raise CheckpointError(
            f"the saved chain is another one: it has no state for {missing}, and state for {unknown}, which "
            "this chain lacks; build the chain as it was saved, in the same order"
        )
    for key, member in members.items():
        member.load_state_dict(state[key])


def _stateful(nodes: Iterable[Node]) -> dict[str, Stateful]:
    members: dict[str, Stateful] = {}
    for leaf in _leaves(nodes):
        middleware: object = leaf.middleware
        if isinstance(middleware, Stateful):
            members[f"{leaf.position}:{leaf.name}"] = middleware
    return members


def call_finish_hooks(nodes: Iterable[Node], ctx: Context) -> list[Exception]:
    """Calls ``finish(ctx)`` of every middleware that has it, in order, whatever fails; returns the errors."""
    return _call(nodes, "finish", ctx)


def call_close_hooks(nodes: Iterable[Node]) -> list[Exception]:
    """Calls ``close()`` of every middleware that has it, in order, whatever fails; returns the errors."""
    return _call(nodes, "close")


def _call(nodes: Iterable[Node], name: str, *args: Any) -> list[Exception]:
    errors: list[Exception] = []
    for leaf in _leaves(nodes):
        hook: Any = getattr(leaf.middleware, name, None)
        if hook is None:
            continue
        try:
            hook(*args)
        except Exception as error:
            add_note(error, f"in {name}() of middleware {leaf.name!r} (position {leaf.position})")
            errors.append(error)
    return errors


def _leaves(nodes: Iterable[Node]) -> Iterable[Node]:
    for node in nodes:
        yield from node.leaves()
