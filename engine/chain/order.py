"""Checks the order of a chain: is the work of one middleware lost, missed, or spoiled by another?"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence

from minding.engine.chain.context import Context
from minding.engine.chain.middleware import Role
from minding.engine.chain.nodes import Node, all_leaves
from minding.engine.chain.pipeline import Parallel


def misplaced(nodes: Sequence[Node], context_type: type[Context]) -> Iterator[str]:
    """Yields the problems of the order, as sentences that name both middleware and say what to do.

    - A middleware refuses the state in which an earlier one leaves a field (`Declaration.refuses`, `leaves`), unless
      the field was overwritten between them.
    - An optional read comes before the only middleware that writes the field.
    - Everything that a middleware writes is overwritten before anything reads it, or it changes a field that nothing
      reads afterwards.

    A middleware without a declaration may read and write any field; it leaves nothing that another refuses.
    """
    spoiled = list(_spoiled(nodes))
    yield from (text for _, text in spoiled)
    named = {id(node) for node, _ in spoiled}
    # Fields that the context does not have are another problem.
    passing = {field.name for field in dataclasses.fields(context_type)} - set(context_type().kept)
    leaves, beside = list(all_leaves(nodes)), _beside(nodes)
    for place, leaf in enumerate(leaves):
        yield from _missed(leaves, place, passing)
        if id(leaf) not in named:
            later = [each for each in leaves[place + 1 :] if id(each) not in beside.get(id(leaf), ())]
            yield from _lost(leaf, leaves[:place], later, passing)


def _beside(nodes: Sequence[Node]) -> dict[int, set[int]]:
    """By identity of each leaf, the leaves that may run at the same time, and the leaf itself."""
    parallel = [node for top in nodes for node in top.walk() if isinstance(node.middleware, Parallel)]
    groups = [{id(leaf) for leaf in node.leaves()} for node in parallel]
    return {leaf: set.union(*(group for group in groups if leaf in group)) for group in groups for leaf in group}


def _spoiled(nodes: Sequence[Node]) -> Iterator[tuple[Node, str]]:
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


def _missed(leaves: Sequence[Node], place: int, passing: set[str]) -> Iterator[str]:
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


def _lost(leaf: Node, earlier: Sequence[Node], later: Sequence[Node], passing: set[str]) -> Iterator[str]:
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
