"""What is done with a chain outside its loop: state for checkpoints, resuming, and hooks around a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from minding.engine.blame import in_code_of
from minding.engine.chain.context import Context
from minding.engine.chain.nodes import Node
from minding.engine.errors import ChainError, CheckpointError
from minding.engine.notes import add_note
from minding.engine.types import StateDict, Stateful

GUARANTEES = ("exact", "in-flight", "episode-boundary", "mid-iteration", "without-buffer")
"""What a resumed run is, best first:

- exact: bit-for-bit identical to an uninterrupted run.
- in-flight: rollouts that were being collected (asynchronous runs) are collected again, with the weights of the
  checkpoint; nothing is counted twice.
- episode-boundary: environments that cannot be restored in the middle of an episode begin a new one.
- mid-iteration: an error aborted an iteration, and what it had done by then is not repeated; or a signal aborted an
  evaluation, which then comes later (training itself is exact).
- without-buffer: the replay buffer was not saved and is refilled.
"""


@runtime_checkable
class Checkpointer(Protocol):
    """A middleware that writes checkpoints and can restore a run from one (`CkptSaver`)."""

    def resume(self, request: str | Path) -> None:
        """Loads ``"latest"``, a checkpoint folder or a run folder.

        Raises:
          CheckpointError: there is none that is whole, or it does not fit.
        """
        ...


def checkpointer(nodes: Iterable[Node]) -> Checkpointer:
    """Returns the first middleware of the chain that can resume.

    Raises:
      ChainError: there is none.
    """
    for leaf in _leaves(nodes):
        middleware: object = leaf.middleware
        if isinstance(middleware, Checkpointer):
            return middleware
    raise ChainError("start(resume=...): the chain has nothing that can resume; add a CkptSaver to it")


def weakest_guarantee(nodes: Iterable[Node], within_iteration: bool) -> str:
    """Returns the weakest of what the middleware say in their attribute `resume_guarantee`.

    Args:
      within_iteration: whether the state is that of an iteration that was aborted.
    """
    found = [getattr(leaf.middleware, "resume_guarantee", "exact") for leaf in _leaves(nodes)]
    found.append("mid-iteration" if within_iteration else "exact")
    return max(found, key=GUARANTEES.index)


def middleware_state(nodes: Sequence[Node]) -> StateDict:
    """Returns ``chain``, all names in order, and ``middleware``, the state of each that is `Stateful`."""
    states = {key: member.state_dict() for key, member in _stateful(nodes).items()}
    return {"chain": _names(nodes), "middleware": states}


def check_chain_state(nodes: Sequence[Node], state: StateDict) -> None:
    """Compares the chain with the one whose state was saved.

    Raises:
      CheckpointError: it is a different one.
    """
    here, saved = _names(nodes), list(state["chain"])
    if here != saved:
        raise CheckpointError(
            f"the saved chain is another one: {' -> '.join(saved)}; this one is {' -> '.join(here)}; build the chain "
            "as it was saved, in the same order"
        )
    stateful = _stateful(nodes).keys()
    if stateful != state["middleware"].keys():
        odd = sorted(stateful ^ state["middleware"].keys())
        raise CheckpointError(f"{', '.join(odd)}: have state either in the checkpoint or in this chain, not in both")


def load_middleware_state(nodes: Iterable[Node], state: StateDict) -> None:
    """Gives each middleware its part of what `middleware_state` returned; see `check_chain_state`."""
    for key, member in _stateful(nodes).items():
        position, _, name = key.partition(":")
        with in_code_of(member, f"in load_state_dict() of middleware {name!r} (position {position})"):
            member.load_state_dict(state["middleware"][key])


def _names(nodes: Iterable[Node]) -> list[str]:
    # Lanes stand for middleware that need not be adjacent.
    ordered = sorted(_leaves(nodes), key=lambda leaf: [int(part) for part in leaf.position.split(".")])
    return [f"{leaf.position}:{leaf.name}" for leaf in ordered]


def _stateful(nodes: Iterable[Node]) -> dict[str, Stateful]:
    members: dict[str, Stateful] = {}
    for leaf in _leaves(nodes):
        middleware: object = leaf.middleware
        if isinstance(middleware, Stateful):
            members[f"{leaf.position}:{leaf.name}"] = middleware
    return members


def call_begin_hooks(nodes: Iterable[Node]) -> list[Exception]:
    """Calls ``begin()`` of every middleware that has it, in order, whatever fails; returns the errors."""
    return _call(_leaves(nodes), "begin")


def call_resumed_hooks(nodes: Iterable[Node], ctx: Context) -> list[Exception]:
    """Calls ``resumed(ctx)`` of every middleware that has it, in order, whatever fails; returns the errors."""
    return _call(_leaves(nodes), "resumed", ctx)


def call_finish_hooks(nodes: Iterable[Node], ctx: Context) -> list[Exception]:
    """Calls ``finish(ctx)`` of every middleware that has it, whatever fails; returns the errors.

    In the order of the chain, except that whatever writes checkpoints comes first: a resumed run must not find in its
    state what other hooks did because the run ended.
    """
    return _call(sorted(_leaves(nodes), key=_writes_no_checkpoint), "finish", ctx)


def call_close_hooks(nodes: Iterable[Node]) -> list[Exception]:
    """Calls ``close()`` of every middleware that has it, in order, whatever fails; returns the errors."""
    return _call(_leaves(nodes), "close")


def raise_first(errors: Sequence[Exception], note: str) -> None:
    """Raises the first error, if any, with the others as notes; see `note_others`."""
    if errors:
        note_others(errors[0], errors[1:], note)
        raise errors[0]


def note_others(error: BaseException, others: Sequence[Exception], note: str) -> None:
    """Adds to an error what else went wrong, each line prefixed with `note`."""
    for other in others:
        add_note(error, f"{note}: {other!r}")


def _writes_no_checkpoint(leaf: Node) -> bool:
    middleware: object = leaf.middleware
    return not isinstance(middleware, Checkpointer)


def _call(leaves: Iterable[Node], name: str, *args: Any) -> list[Exception]:
    errors: list[Exception] = []
    for leaf in leaves:
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
