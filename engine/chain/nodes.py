"""The middleware of a chain with their positions and declarations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from minding.engine.chain.middleware import Declaration, Middleware, Role, declaration_of, name_of
from minding.engine.chain.pipeline import Composite


@dataclasses.dataclass(frozen=True)
class Node:
    """A middleware at its place in the chain.

    Attributes:
      middleware: the callable.
      position: ``"2"``, or ``"2.0"`` for the first member of a composite at 2.
      name: its name in messages.
      role: its declared role, or the one given to `Task.use`.
      declaration: its declaration; None for plain user functions, and for composites, whose members have their own.
      members: the nodes inside a composite; empty for any other middleware.
    """

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
    """Lays out a chain, including the members of `serial`, `parallel` and `wrap`.

    Args:
      chain: the middleware in order.
      roles: one per middleware; one that is not None replaces the declared role.
    """
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


def all_leaves(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yields the middleware of a chain that are not composites, in order."""
    for node in nodes:
        yield from node.leaves()
