"""Divides a chain into lanes by the roles of its middleware."""

import dataclasses
from collections.abc import Sequence

from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import Node, all_leaves

_ROLLOUTS = frozenset({"trajectories", "episodes"})
# The lanes themselves write these fields.
_LATER = frozenset({"total_step", "eval_value", "eval_output", "eval_params", "policy_lag"})


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of a chain that runs in one lane, and what crosses between it and the main process."""

    members: tuple[Node, ...]
    main: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    written: tuple[str, ...] | None
    upstream: tuple[Node, ...]

    @property
    def leaves(self) -> tuple[Node, ...]:
        """The members that are not composites."""
        return tuple(all_leaves(self.members))


@dataclasses.dataclass(frozen=True)
class Division:
    """A chain divided into lanes; middleware that are in no part stay in the main process."""

    collect: Part | None
    evaluate: tuple[Part, ...]


def divide(nodes: Sequence[Node], kept: Sequence[str], fields: Sequence[str] = ()) -> Division:
    """Divides a chain.

    The collect lane consists of the collector and the middleware of role collect that are adjacent to it (evaluators
    between them do not interrupt it). All other middleware stay in the main process, at their places: learners,
    middleware without a role, and those of role collect that one of these separates from the collector. A member that
    declares no fields may read and write any.
    """
    evaluators = [node for node in nodes if _all_of(node, Role.EVALUATE)]
    collect = _collect_run(_without(nodes, evaluators))
    away = [*evaluators, *collect]
    here = _without(nodes, away)
    # Results of evaluations enter the context at the place of their lane, for the main process.
    results = {name for leaf in all_leaves(evaluators) if leaf.declaration for name in leaf.declaration.writes}
    open_fields = [name for name in fields if name not in results | _LATER]
    return Division(
        collect=_part(collect, here, kept, open_fields) if collect else None,
        evaluate=tuple(_part([node], here, kept, open_fields) for node in evaluators),
    )


def _without(nodes: Sequence[Node], others: Sequence[Node]) -> list[Node]:
    # By identity, since middleware need not be comparable.
    places = {other.position for other in others}
    return [node for node in nodes if node.position not in places]


def _all_of(node: Node, role: Role) -> bool:
    leaves = list(node.leaves())
    return bool(leaves) and all(leaf.role is role for leaf in leaves)


def _collect_run(nodes: Sequence[Node]) -> list[Node]:
    runs: list[list[Node]] = [[]]
    for node in nodes:
        if _all_of(node, Role.COLLECT):
            runs[-1].append(node)
        elif runs[-1]:
            runs.append([])
    # A middleware that declares nothing may be a collector, too.
    return next((run for run in runs if any(map(collects, run))), next(filter(_open, runs), []))


def collects(node: Node) -> bool:
    """Whether the middleware declares that it writes rollouts."""
    return any(name in _ROLLOUTS for leaf in node.leaves() if leaf.declaration for name in leaf.declaration.writes)


def _open(nodes: Sequence[Node]) -> bool:
    return any(leaf.declaration is None for leaf in all_leaves(nodes))


def _part(members: Sequence[Node], outside: Sequence[Node], kept: Sequence[str], fields: Sequence[str]) -> Part:
    inputs: list[str] = []
    written: list[str] = []
    for leaf in all_leaves(members):
        if leaf.declaration is None:
            inputs += [name for name in fields if name not in written]
            continue
        declaration = leaf.declaration
        inputs += [name for name in (*declaration.reads, *declaration.optional) if name not in written]
        written += declaration.writes
    others = list(all_leaves(outside))
    wanted = {*kept}
    for leaf in others:
        if leaf.declaration is not None:
            wanted.update(leaf.declaration.reads, leaf.declaration.optional)
        else:
            # A user's own middleware may read anything.
            wanted.update(written)
    main = next(filter(collects, members), members[0])
    return Part(
        members=tuple(members),
        main=main,
        inputs=tuple(dict.fromkeys(inputs)),
        outputs=tuple(dict.fromkeys(name for name in written if name in wanted)),
        written=None if _open(members) else tuple(dict.fromkeys(written)),
        upstream=tuple(leaf for leaf in others if _place(leaf) < _place(main)),
    )


def _place(node: Node) -> list[int]:
    return [int(part) for part in node.position.split(".")]
