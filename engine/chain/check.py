"""Checks a chain before it runs, and shows it as a table."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minding.engine.chain.context import Context
from minding.engine.chain.middleware import Middleware, Role
from minding.engine.chain.nodes import Node, all_leaves, chain_nodes
from minding.engine.chain.order import misplaced
from minding.engine.chain.pipeline import Composite, Parallel
from minding.engine.errors import ChainError, nearest

_WIDTH = 120
"""Characters in a line of the pipeline view."""


def check_chain(
    chain: Sequence[Middleware[Any]], context_type: type[Context], roles: Sequence[Role | None] | None = None
) -> None:
    """Checks that the declarations of a chain's middleware fit together; `Task.run` calls it before the first step.

    A middleware without a declaration may write any field, so a read downstream of one is never an error.
    Members of one `parallel` run at the same time: none may read a field that another writes, and no two may write
    the same field.

    Args:
      chain: the middleware in order.
      context_type: class of the context that the chain runs with.
      roles: one per middleware; one that is not None replaces the declared role.
    Raises:
      ChainError: lists all problems found: a field read that nothing upstream writes, a learner before the collector, a
        field that the context does not have, an order in which the work of a middleware is spoiled, lost or missed
        (see `engine.chain.order`), a clash inside `parallel`, and the problems that the middleware's own
        ``requirements()`` and ``clashes()`` return.
    """
    nodes = chain_nodes(chain, roles)
    problems = [
        *_unknown_fields(nodes, context_type),
        *_unwritten_reads(nodes, context_type),
        *_misplaced_roles(nodes),
        *misplaced(nodes, context_type),
        *_parallel_clashes(nodes),
        *_own_requirements(nodes),
    ]
    if len(problems) == 1:
        raise ChainError(problems[0])
    if problems:
        listed = "".join(f"\n  {number}. {problem}" for number, problem in enumerate(problems, start=1))
        raise ChainError(f"the chain has {len(problems)} problems:{listed}")


def _field_names(context_type: type[Context]) -> list[str]:
    return [*(field.name for field in dataclasses.fields(context_type)), "clock"]


def _unknown_fields(nodes: Sequence[Node], context_type: type[Context]) -> Iterator[str]:
    known = _field_names(context_type)
    for leaf in all_leaves(nodes):
        if leaf.declaration is None:
            continue
        for verb, names in (("reads", leaf.declaration.reads), ("writes", leaf.declaration.writes)):
            for name in names:
                if name not in known:
                    yield (
                        f"{leaf.name} at position {leaf.position} {verb} ctx.{name}, which "
                        f"{context_type.__name__} does not have{nearest(name, known)}; start the task with a "
                        "context that declares it"
                    )


@dataclasses.dataclass
class _Upstream:
    """Fields written above the position in question; `anything` below an undeclared middleware."""

    fields: set[str]
    anything: bool = False

    def copy(self) -> _Upstream:
        return _Upstream(set(self.fields), self.anything)

    def merge(self, other: _Upstream) -> None:
        self.fields |= other.fields
        self.anything |= other.anything


def _unwritten_reads(nodes: Sequence[Node], context_type: type[Context]) -> list[str]:
    known = set(_field_names(context_type))
    problems: list[str] = []

    def visit(node: Node, upstream: _Upstream) -> None:
        if isinstance(node.middleware, Parallel):
            before = upstream.copy()
            for member in node.members:
                beside = before.copy()
                visit(member, beside)
                upstream.merge(beside)
            return
        for member in node.members:
            visit(member, upstream)
        if node.declaration is not None:
            if not upstream.anything:
                for name in node.declaration.reads:
                    if name in known and name not in upstream.fields:
                        problems.append(_missing_read(node, name, nodes))
            upstream.fields.update(node.declaration.writes)
        elif not isinstance(node.middleware, Composite):
            upstream.anything = True

    upstream = _Upstream({*context_type().kept, "clock"})
    for node in nodes:
        visit(node, upstream)
    return problems


def _missing_read(node: Node, name: str, nodes: Sequence[Node]) -> str:
    writers = [leaf for leaf in all_leaves(nodes) if leaf is not node and name in _writes(leaf)]
    if writers:
        fix = f"{writers[0].name} at position {writers[0].position} writes it: move it before"
    elif name in ("trajectories", "episodes"):
        collector = "StepCollector" if name == "trajectories" else "EpisodeCollector"
        fix = f"add a collector ({collector} writes it) before it"
    else:
        fix = f"add a middleware that writes it before position {node.position}"
    return f"{node.name} at position {node.position} reads ctx.{name}, which nothing before it writes; {fix}"


def _misplaced_roles(nodes: Sequence[Node]) -> Iterator[str]:
    leaves = list(all_leaves(nodes))
    first_collect = next((index for index, leaf in enumerate(leaves) if leaf.role is Role.COLLECT), None)
    if first_collect is None:
        return
    collector = leaves[first_collect]
    for leaf in leaves[:first_collect]:
        if leaf.role is Role.LEARN:
            yield (
                f"{leaf.name} at position {leaf.position} learns before {collector.name} at position "
                f"{collector.position} collects; move it after the collector"
            )


def _parallel_clashes(nodes: Sequence[Node]) -> Iterator[str]:
    for node in (below for top in nodes for below in top.walk()):
        if not isinstance(node.middleware, Parallel):
            continue
        with_role = [member for member in node.members if any(leaf.role for leaf in member.leaves())]
        if len(with_role) > 1:
            names = " and ".join(member.name for member in with_role)
            yield (
                f"parallel at position {node.position} has {len(with_role)} members with a role ({names}); "
                "one thread owns MindSpore: keep at most one of them in parallel and move the others into the chain"
            )
        owners: dict[str, Node] = {}
        for member in node.members:
            for name in sorted(_writes(member)):
                if name in owners:
                    yield (
                        f"{owners[name].name} and {member.name}, members of parallel at position "
                        f"{node.position}, both write ctx.{name}; use serial, or let one of them write "
                        "another field"
                    )
                owners.setdefault(name, member)


def _writes(node: Node) -> set[str]:
    return {name for leaf in node.leaves() if leaf.declaration for name in leaf.declaration.writes}


def _own_requirements(nodes: Sequence[Node]) -> Iterator[str]:
    chain = [leaf.middleware for leaf in all_leaves(nodes)]
    for leaf in all_leaves(nodes):
        requirements: Callable[[], Sequence[str]] | None = getattr(leaf.middleware, "requirements", None)
        clashes: Callable[[Sequence[Middleware[Any]]], Sequence[str]] | None = getattr(leaf.middleware, "clashes", None)
        problems = [*(requirements() if requirements else ()), *(clashes(chain) if clashes else ())]
        for problem in problems:
            yield f"{leaf.name} at position {leaf.position}: {problem}"


def pipeline_view(chain: Sequence[Middleware[Any]], roles: Sequence[Role | None] | None = None) -> str:
    """Returns the chain as an aligned table: position, name, role, fields read -> written.

    Members of composites are indented. ``?`` stands for a middleware that declares nothing.
    """
    return table(pipeline_rows(chain_nodes(chain, roles)))


def pipeline_rows(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """Returns the cells of the pipeline view; the first row holds the titles."""
    rows: list[tuple[str, ...]] = [("", "middleware", "role", "reads -> writes")]
    return rows + [_view_row(node) for top in nodes for node in top.walk()]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of text with aligned columns; the last column wraps where a line would exceed `_WIDTH`."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for *columns, last in rows:
        padded = [f"{column:<{width}}" for column, width in zip(columns, widths)]
        indent = sum(widths) + 2 * len(widths)
        parts = textwrap.wrap(last, max(_WIDTH - indent, 40), break_long_words=False, break_on_hyphens=False) or [""]
        lines.append("  ".join([*padded, parts[0]]).rstrip())
        lines += [" " * indent + part for part in parts[1:]]
    return "\n".join(lines)


def _view_row(node: Node) -> tuple[str, str, str, str]:
    depth = node.position.count(".")
    role = node.role.value if node.role else ""
    fields = "" if isinstance(node.middleware, Composite) else "?"
    if node.declaration is not None:
        optional = [f"({name})" for name in node.declaration.optional]
        reads = ", ".join([*node.declaration.reads, *optional]) or "nothing"
        fields = f"{reads} -> {', '.join(node.declaration.writes) or 'nothing'}"
    return "  " * depth + node.position, "  " * depth + node.name, role, fields
