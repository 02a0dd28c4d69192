"""Runs in which collectors and learner run independently, as far as the limiter of a replay table allows.

An iteration takes a rollout if one has arrived and its rows may be inserted. Otherwise it continues without one, if a
learner may sample: middleware that need the rollout are skipped. If neither is possible, it waits for a rollout. Only
the lane waits; limiters never do.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from minding.engine.chain.middleware import Declaration, Role
from minding.engine.chain.pipeline import Node
from minding.engine.data.rollout import Rollout
from minding.engine.errors import LimitError
from minding.engine.lanes.division import Part

_ROLLOUT = "trajectories"


class Move(enum.Enum):
    """The action of an iteration."""

    TAKE = "take the rollout"
    LEARN = "continue without a rollout"
    WAIT = "wait for a rollout"
    STUCK = "never continue"


def next_move(fits: bool | None, may_learn: bool) -> Move:
    if fits:
        return Move.TAKE
    if may_learn:
        return Move.LEARN
    # Only inserts allow samples, and only samples allow inserts.
    return Move.WAIT if fits is None else Move.STUCK


@runtime_checkable
class Inserter(Protocol):
    """A middleware that inserts rollouts into a buffer of learners, see `engine.chain.middleware.Middleware`."""

    bounded: bool

    def cannot_insert(self, rollouts: Sequence[Rollout]) -> str | None: ...


@runtime_checkable
class Sampler(Protocol):
    """A middleware that learns from rows that a `Inserter` inserted, see `engine.chain.middleware.Middleware`."""

    def cannot_learn(self, ctx: Any) -> str | None: ...


@dataclasses.dataclass(frozen=True)
class FreeRun:
    """The members of a chain that decide whether an iteration takes a rollout, and those that need it.

    Attributes:
      seconds: time limit, in seconds, of a wait for a rollout while no learner may sample.
    """

    inserters: tuple[Inserter, ...]
    samplers: tuple[Sampler, ...]
    needing: tuple[Node, ...]
    seconds: float

    def move(self, rollouts: Sequence[Rollout] | None, ctx: Any) -> Move:
        fits = None if rollouts is None else not self._refusals(rollouts)
        # A rollout that fits is taken, whatever learners may do.
        move = next_move(fits, not fits and any(sampler.cannot_learn(ctx) is None for sampler in self.samplers))
        if move is Move.STUCK:
            assert rollouts is not None
            raise LimitError(
                f"neither side may continue: {'; '.join([*self._refusals(rollouts), *self._reasons_to_wait(ctx)])}; "
                "set policy.other.table.limiter_error (limiter_rows of queue and stack) to at least the samples of one "
                "call of the learner, and to at least the rows of a rollout times samples_per_insert"
            )
        return move

    def late(self, ctx: Any) -> LimitError:
        """The error of a wait for a rollout that took too long."""
        return LimitError(
            f"no rollout has come for {self.seconds:g} s (lanes.limiter_timeout), and learning waits for it: "
            f"{'; '.join(self._reasons_to_wait(ctx))}. Inserting is allowed and waits for the collectors: raise "
            "lanes.limiter_timeout if they are slow, use more of them (lanes.collectors), or let the learner go "
            "further ahead with a wider limiter (policy.other.table.limiter_error, or limiter_rows of queue and stack)"
        )

    def _refusals(self, rollouts: Sequence[Rollout]) -> list[str]:
        return [text for text in (inserter.cannot_insert(rollouts) for inserter in self.inserters) if text is not None]

    def _reasons_to_wait(self, ctx: Any) -> list[str]:
        return [text for text in (sampler.cannot_learn(ctx) for sampler in self.samplers) if text is not None]


def free_run(
    earlier: Sequence[Node], later: Sequence[Node], part: Part, names: Sequence[str], kept: Sequence[str],
    seconds: float,
) -> FreeRun | None:  # fmt: skip
    """Returns the `FreeRun` of a chain; None if no limiter bounds samples per insert, or no learner samples by itself.
    A member needs the rollout if it reads a field that the collect lane writes, or one that another member that needs
    the rollout writes. A member that declares nothing may read anything, and so needs it, too. Kept fields exist in
    each iteration."""
    open_fields = set(names) - set(kept)
    there = {name for node in earlier for declared in _declared(node) for name in declared.writes}
    missing = open_fields - there if part.written is None else set(part.written) & open_fields
    needing: list[Node] = []
    inserters: list[Inserter] = []
    samplers: list[Sampler] = []
    changed = _ROLLOUT not in part.outputs
    for node in later:
        leaves = list(node.leaves())
        members: list[object] = [leaf.middleware for leaf in leaves]
        writes = {name for declared in _declared(node) for name in declared.writes} & open_fields
        inserters += [each for each in members if isinstance(each, Inserter) and each.bounded]
        if not any(leaf.declaration is None or missing.intersection(leaf.declaration.reads) for leaf in leaves):
            learning: list[object] = [leaf.middleware for leaf in leaves if leaf.role is Role.LEARN]
            samplers += [each for each in learning if isinstance(each, Sampler)]
            missing -= writes
            there |= writes
            continue
        needing.append(node)
        missing |= writes if len(_declared(node)) == len(leaves) else open_fields - there
        # An inserter after a member that changes the rollout does not insert the rollout as it arrived.
        changed = changed or (not inserters and _ROLLOUT in writes)
    if changed or not inserters or not samplers:
        return None
    return FreeRun(tuple(inserters), tuple(samplers), tuple(needing), seconds)


def _declared(node: Node) -> list[Declaration]:
    return [leaf.declaration for leaf in node.leaves() if leaf.declaration is not None]


class WithRollout:
    """A member of the chain that runs only in iterations with a rollout."""

    def __init__(self, node: Node, lane: Any) -> None:
        self._middleware, self._lane = node.middleware, lane

    def __call__(self, ctx: Any) -> object:
        return self._middleware(ctx) if self._lane.has_rollout else None
