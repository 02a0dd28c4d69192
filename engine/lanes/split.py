"""Cuts a chain into lanes by the roles of its middleware."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from minding.engine.chain import Node
from minding.engine.middleware import Role

_ROLLOUTS = frozenset({"trajectories", "episodes"})


@dataclasses.dataclass(frozen=True)
class Cut:
    """What leaves the main process, and what crosses.

    Attributes:
      members: the middleware of a lane, in order.
      main: the one among them that collects, or evaluates: the lane stands where it stood.
      inputs: fields of the context that they read and do not write before.
      outputs: fields that they write and somebody outside reads, or that are kept.
    """

    members: tuple[Node, ...]
    main: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def leaves(self) -> tuple[Node, ...]:
        """The middleware that are no composites."""
        return tuple(leaf for member in self.members for leaf in member.leaves())


@dataclasses.dataclass(frozen=True)
class Split:
    """A chain in lanes.

    Attributes:
      collect: what runs in collectors; None if nothing does.
      evaluate: what runs in evaluators, one cut each.
    """

    collect: Cut | None
    evaluate: tuple[Cut, ...]


def split(nodes: Sequence[Node], kept: Sequence[str]) -> Split:
    """Cuts a chain.

    The collect lane is the run of neighbouring middleware of role collect that has the collector in it (evaluators
    between them do not part it). Everything else stays in the main process, at its place: learners, what declares
    no role, and collect-role middleware beyond one of those.

    Args:
      nodes: the chain.
      kept: fields of the context that outlive an iteration.
    """
    evaluators = [node for node in nodes if _all_of(node, Role.EVALUATE)]
    collect = _collect_run(_without(nodes, evaluators))
    away = [*evaluators, *collect]
    here = _without(nodes, away)
    return Split(
        collect=_cut(collect, here, kept) if collect else None,
        evaluate=tuple(_cut([node], here, kept) for node in evaluators),
    )


def _without(nodes: Sequence[Node], others: Sequence[Node]) -> list[Node]:
    # By place: middleware need not be comparable.
    places = {other.position for other in others}
    return [node for node in nodes if node.position not in places]


def _all_of(node: Node, role: Role) -> bool:
    leaves = list(node.leaves())
    return bool(leaves) and all(leaf.role is role and leaf.declaration is not None for leaf in leaves)


def _collect_run(nodes: Sequence[Node]) -> list[Node]:
    runs: list[list[Node]] = [[]]
    for node in nodes:
        if _all_of(node, Role.COLLECT):
            runs[-1].append(node)
        elif runs[-1]:
            runs.append([])
    return next((run for run in runs if any(map(_collects, run))), [])


def _collects(node: Node) -> bool:
    return any(name in _ROLLOUTS for leaf in node.leaves() if leaf.declaration for name in leaf.declaration.writes)


def _cut(members: Sequence[Node], outside: Sequence[Node], kept: Sequence[str]) -> Cut:
    inputs: list[str] = []
    written: list[str] = []
    for leaf in _leaves(members):
        assert leaf.declaration is not None
        declaration = leaf.declaration
        inputs += [name for name in (*declaration.reads, *declaration.optional) if name not in written]
        written += declaration.writes
    others = list(_leaves(outside))
    wanted = {*kept}
    for leaf in others:
        if leaf.declaration is not None:
            wanted.update(leaf.declaration.reads, leaf.declaration.optional)
        else:
            # A user's own middleware may read anything.
            wanted.update(written)
    return Cut(
        members=tuple(members),
        main=next(filter(_collects, members), members[0]),
        inputs=tuple(dict.fromkeys(inputs)),
        outputs=tuple(dict.fromkeys(name for name in written if name in wanted)),
    )


def _leaves(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield from node.leaves()
