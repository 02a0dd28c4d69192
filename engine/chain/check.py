"""Checks a chain before it runs, and shows it as a table."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minding.engine.chain.context import UNITS, Context
from minding.engine.chain.middleware import Middleware, Role
from minding.engine.chain.pipeline import Composite, Node, Parallel, all_leaves, chain_nodes
from minding.engine.errors import ChainError, nearest

_WIDTH = 120
"""Characters in a line of the pipeline view."""


def check_chain(
    chain: Sequence[Middleware[Any]], context_type: type[Context], roles: Sequence[Role | None] | None = None
) -> None:
    """Checks that the declarations of a chain's middleware fit together; `Task.run` calls it before the first step. A
    middleware without a declaration may write any field, so a read downstream of one is never an error. Members of one
    `parallel` run at the same time: none may read a field that another writes, and no two may write the same field."""
    nodes = chain_nodes(chain, roles)
    problems = [
        *_unknown_fields(nodes, context_type),
        *_unwritten_reads(nodes, context_type),
        *_misplaced_roles(nodes),
        *order_problems(nodes, context_type),
        *_parallel_clashes(nodes),
        *_own_requirements(nodes),
    ]
    if len(problems) == 1:
        raise ChainError(problems[0])
    if problems:
        listed = "".join(f"\n  {number}. {problem}" for number, problem in enumerate(problems, start=1))
        raise ChainError(f"the chain has {len(problems)} problems:{listed}")


def endless(chain: Sequence[Middleware[Any]]) -> bool:
    """Whether no middleware can end the run: all are minding's own, of which only `termination_checker` does."""
    leaves = list(all_leaves(chain_nodes(chain)))
    own = all(str(getattr(leaf.middleware, "__module__", "")).startswith("minding.") for leaf in leaves)
    return own and not any(leaf.name == "termination_checker" for leaf in leaves)


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


def order_problems(nodes: Sequence[Node], context_type: type[Context]) -> Iterator[str]:
    """Yields the problems of the order, as sentences that name both middleware and say what to do.

    - A middleware refuses the state in which an earlier one leaves a field (`Declaration.refuses`, `leaves`), unless
      the field was overwritten between them.
    - An optional read comes before the only middleware that writes the field.
    - Everything that a middleware writes is overwritten before anything reads it, or it changes a field that nothing
      reads afterwards, or makes one of others that nothing reads: a chain without a trainer.

    A middleware without a declaration may read and write any field; it leaves nothing that another refuses.
    """
    refused = list(_refused_states(nodes))
    yield from (text for _, text in refused)
    named = {id(node) for node, _ in refused}
    # Fields that the context does not have are another problem.
    passing = {field.name for field in dataclasses.fields(context_type)} - set(context_type().kept)
    leaves, concurrent = list(all_leaves(nodes)), _concurrent(nodes)
    for place, leaf in enumerate(leaves):
        yield from _read_too_early(leaves, place, passing)
        if id(leaf) not in named:
            later = [each for each in leaves[place + 1 :] if id(each) not in concurrent.get(id(leaf), ())]
            yield from _unused_writes(leaf, leaves[:place], later, passing)


def _concurrent(nodes: Sequence[Node]) -> dict[int, set[int]]:
    """By identity of each leaf, the leaves that may run at the same time, and the leaf itself."""
    parallel = [node for top in nodes for node in top.walk() if isinstance(node.middleware, Parallel)]
    groups = [{id(leaf) for leaf in node.leaves()} for node in parallel]
    return {leaf: set.union(*(group for group in groups if leaf in group)) for group in groups for leaf in group}


def _refused_states(nodes: Sequence[Node]) -> Iterator[tuple[Node, str]]:
    """What is refused, with the middleware that refuses it."""
    found: list[tuple[Node, str]] = []

    def visit(node: Node, left: dict[str, Node]) -> None:
        if isinstance(node.middleware, Parallel):
            before = dict(left)
            for member in node.members:
                beside = dict(before)
                visit(member, beside)
                left.update(beside)
            return
        for member in node.members:
            visit(member, left)
        declared = node.declaration
        if declared is None:
            return
        # The earliest middleware that it cannot follow; it fits before that one.
        refused = next((state for state in left if state in declared.refuses), None)
        if refused is not None:
            found.append((node, _refusal(node, left[refused], refused)))
        afresh = set(declared.writes) - {*declared.reads, *declared.optional}
        for state in [state for state in left if state.partition(".")[0] in afresh]:
            del left[state]
        for state in declared.leaves:
            left.setdefault(state, node)

    left: dict[str, Node] = {}
    for node in nodes:
        visit(node, left)
    yield from found


def _refusal(node: Node, earlier: Node, state: str) -> str:
    field, _, what = state.partition(".")
    assert node.declaration is not None
    assert earlier.declaration is not None
    if set(earlier.declaration.refuses) & set(node.declaration.leaves):
        fix = "use one of the two, or collect again between them"
    else:
        fix = f"move {node.name} before {earlier.name}"
    return (
        f"{node.name} at position {node.position} cannot work on ctx.{field} after {earlier.name} at position "
        f"{earlier.position}, which leaves it {what}; {fix}"
    )


def _read_too_early(leaves: Sequence[Node], place: int, passing: set[str]) -> Iterator[str]:
    """Optional reads of what is only written later in the iteration."""
    leaf = leaves[place]
    if leaf.declaration is None or _has_second_half(leaf) or any(each.declaration is None for each in leaves[:place]):
        return
    for name in leaf.declaration.optional:
        if name not in passing or name in leaf.declaration.writes:
            continue
        writers = [each for each in leaves if each.declaration is not None and name in each.declaration.writes]
        if writers and all(writer in leaves[place + 1 :] for writer in writers):
            yield (
                f"{leaf.name} at position {leaf.position} uses ctx.{name}, which {writers[0].name} at position "
                f"{writers[0].position} writes after it, and so never finds it; move {leaf.name} after "
                f"{writers[0].name}"
            )


def _unused_writes(leaf: Node, earlier: Sequence[Node], later: Sequence[Node], passing: set[str]) -> Iterator[str]:
    """Work of a middleware that nothing uses."""
    if leaf.declaration is None or any(_has_second_half(each) for each in (*earlier, leaf, *later)):
        return
    if leaf.declaration.role is Role.EVALUATE:
        # Several evaluators may be due in different iterations.
        return
    # A field to which it only adds, such as metrics, is for any reader.
    written = [name for name in leaf.declaration.writes if name in passing and name not in leaf.declaration.optional]
    ends = {name: _next_use(later, name) for name in written}
    if not written or any(reads for reads, _ in ends.values()):
        return
    overwriters = {name: node for name, (_, node) in ends.items() if node is not None}
    changed = [name for name in written if name in leaf.declaration.reads]
    if len(overwriters) == len(written):
        name, writer = next(iter(overwriters.items()))
        yield (
            f"{writer.name} at position {writer.position} overwrites ctx.{name}, which {leaf.name} at position "
            f"{leaf.position} wrote and nothing has read; use one of the two, or put a middleware "
            "that reads it between them"
        )
    elif changed:
        readers = [each for each in earlier if each.declaration and changed[0] in each.declaration.reads]
        fix = f"move it before {readers[-1].name} at position {readers[-1].position}" if readers else "leave it out"
        yield (
            f"{leaf.name} at position {leaf.position} changes ctx.{changed[0]}, which nothing after it reads; {fix}, "
            "or add a middleware after it that reads it"
        )
    elif (passing & set(leaf.declaration.reads) or leaf.declaration.role is Role.LEARN) and not (
        UNITS.keys() & set(leaf.declaration.writes)
    ):
        # Collecting and learning, which count steps, are work of their own.
        name = next(name for name in written if name not in overwriters)
        reader = "a trainer (multistep_trainer reads it)" if name == "train_data" else "a middleware that reads it"
        yield (
            f"{leaf.name} at position {leaf.position} writes ctx.{name}, which nothing after it reads; add {reader} "
            "after it, or leave it out"
        )


def _next_use(later: Sequence[Node], name: str) -> tuple[bool, Node | None]:
    """Whether a field is read before it is overwritten, and what overwrites it otherwise."""
    for node in later:
        if node.declaration is None or name in node.declaration.reads or name in node.declaration.optional:
            return True, None
        if name in node.declaration.writes:
            return False, node
    return False, None


def _has_second_half(node: Node) -> bool:
    """Whether it may read and write again once the rest of the chain has finished."""
    call = getattr(node.middleware, "__call__", None)  # noqa: B004
    return inspect.isgeneratorfunction(node.middleware) or inspect.isgeneratorfunction(call)


def pipeline_view(nodes: Sequence[Node]) -> str:
    """Returns the chain as an aligned table: position, name, role, fields read -> written. Members of composites are
    indented. ``?`` stands for a middleware that declares nothing."""
    return table(pipeline_rows(nodes))


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
