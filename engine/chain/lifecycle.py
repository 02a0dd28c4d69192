"""A chain outside its loop: state for checkpoints, resuming, and hooks around a run."""

import collections
import logging
import numbers
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from minding.engine.chain.pipeline import Node, all_leaves
from minding.engine.error_origin import in_code_of
from minding.engine.errors import ChainError, CheckpointError, add_note
from minding.engine.types import StateDict, Stateful

_log = logging.getLogger("minding.task")
GUARANTEES = ("exact", "in-flight", "batched", "arrival", "episode-boundary", "mid-iteration", "without-buffer")
"""What a resumed run is, best first:

- exact: bit-for-bit identical to an uninterrupted run.
- in-flight: rollouts that were being collected (asynchronous runs) are collected again, with the weights of the
  checkpoint; nothing is counted twice.
- batched: as in-flight, and networks compute batches of several collectors (``lanes.inference=server``). The batches
  depend on timing, so results differ by rounding.
- arrival: rollouts are used in the order in which they arrive (``lanes.order=arrival``), which does not repeat.
- episode-boundary: environments that cannot be restored in the middle of an episode begin a new one.
- mid-iteration: an error, or a signal in a long rollout, aborted an iteration, and the part that was done is not
  repeated; or a signal aborted an evaluation, which then takes place later (training itself is exact).
- without-buffer: the replay buffer was not saved and is refilled.
"""

_OPTIONAL = "use:"
"""Prefix of the names of middleware without which a run may be resumed."""


@runtime_checkable
class Checkpointer(Protocol):
    """A middleware that writes checkpoints and can restore a run from one (`CkptSaver`)."""

    def resume(self, request: str | Path) -> None:
        """Loads ``"latest"``, a checkpoint folder or a run folder."""
        ...


def checkpointer(nodes: Iterable[Node]) -> Checkpointer:
    """Returns the first middleware of the chain that can resume."""
    for leaf in all_leaves(nodes):
        middleware: object = leaf.middleware
        if isinstance(middleware, Checkpointer):
            return middleware
    raise ChainError("start(resume=...): the chain has nothing that can resume; add a CkptSaver to it")


def weakest_guarantee(nodes: Iterable[Node], within_iteration: bool) -> str:
    """Returns the weakest guarantee among the attributes `resume_guarantee` of the middleware."""
    found = [getattr(leaf.middleware, "resume_guarantee", "exact") for leaf in all_leaves(nodes)]
    found.append("mid-iteration" if within_iteration else "exact")
    return max(found, key=GUARANTEES.index)


def middleware_state(nodes: Sequence[Node], optional: Sequence[object] = ()) -> StateDict:
    """Returns ``chain``, all names in order, and ``middleware``, the state of each that is `Stateful`."""
    named = _named(nodes, optional)
    states = {name: member.state_dict() for name, member in named if isinstance(member, Stateful)}
    return {"chain": _required(named), "middleware": states}


def check_division(here: Mapping[str, int], saved: Mapping[str, int]) -> None:
    """Compares the division of collecting with the saved one, see `engine.chain.lanes.Lanes.division`."""
    if here != saved:
        differences = "; ".join(f"{name} was {saved.get(name)} and is {here.get(name)}" for name in {**here, **saved})
        raise CheckpointError(
            f"the saved state has other collectors: {differences}; each collector has its own environments and random "
            "numbers. "
            "Continue with the saved numbers (without async_mode, each is 1), or start a new run"
        )


def check_chain_state(nodes: Sequence[Node], state: StateDict, optional: Sequence[object] = ()) -> None:
    """Compares the chain with the saved one; logs a warning for each optional member that is in only one of them."""
    named = _named(nodes, optional)
    here, saved = _required(named), list(state["chain"])
    if here != saved:
        raise CheckpointError(
            f"expected the chain of the checkpoint, {' -> '.join(saved)}, got {' -> '.join(here)}; build the chain as "
            "it was saved, in the same order; what a script has begun, that script resumes, with task.start(resume=...)"
        )
    stateful = {name for name, member in named if isinstance(member, Stateful)}
    odd = sorted(stateful ^ state["middleware"].keys())
    required = [key for key in odd if not key.startswith(_OPTIONAL)]
    if required:
        raise CheckpointError(
            f"{', '.join(required)}: there is state either in the checkpoint or in this chain, but not in both; build "
            "the chain with the same middleware as it was saved with"
        )
    for key in odd:
        what = "has no state in the checkpoint and starts new" if key in stateful else "was removed; its state is lost"
        _log.warning("use: %s %s", key.removeprefix(_OPTIONAL), what)


def load_middleware_state(nodes: Sequence[Node], state: StateDict, optional: Sequence[object] = ()) -> None:
    """Gives each middleware its part of what `middleware_state` returned; see `check_chain_state`."""
    for name, member in _named(nodes, optional):
        if isinstance(member, Stateful) and (name in state["middleware"] or not name.startswith(_OPTIONAL)):
            if type(member).__module__.startswith("minding."):
                _check_kinds(state["middleware"][name], member.state_dict(), name)
            place, _, label = name.partition(":")
            where = "in `use`" if name.startswith(_OPTIONAL) else f"position {place}"
            with in_code_of(member, f"in load_state_dict() of middleware {label!r} ({where})"):
                member.load_state_dict(state["middleware"][name])


def _check_kinds(saved: Any, own: Any, where: str) -> None:
    """Refuses a number in place of a text, a section, a list or an array, and the reverse; None replaces anything."""
    if saved is None or own is None:
        return
    if _kind(saved) != _kind(own):
        raise ValueError(f"{where} is {_kind(saved)}, expected {_kind(own)}")
    if isinstance(own, Mapping):
        for key in saved.keys() & own.keys():
            _check_kinds(saved[key], own[key], f"{where}.{key}")


def _kind(value: Any) -> str:
    if isinstance(value, (numbers.Number, np.generic)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a section" if isinstance(value, Mapping) else "a list" if isinstance(value, (list, tuple)) else "an array"


def _named(nodes: Iterable[Node], optional: Sequence[object]) -> list[tuple[str, object]]:
    """All middleware in order, each with its name in a checkpoint: required ones have their position among the required
    ones, optional ones have ``use:`` and, if several have the same name, a number."""
    # A lane represents middleware that need not be adjacent.
    ordered = sorted(all_leaves(nodes), key=lambda leaf: [int(part) for part in leaf.position.split(".")])
    left_out = {id(each) for each in optional}
    free = [id(leaf.middleware) in left_out and "." not in leaf.position for leaf in ordered]
    without = [int(leaf.position) for leaf, is_free in zip(ordered, free) if is_free]
    named: list[tuple[str, object]] = []
    alike: collections.Counter[str] = collections.Counter()
    for leaf, is_free in zip(ordered, free):
        place, *inner = leaf.position.split(".")
        first = int(place) - sum(each < int(place) for each in without)
        name = f"{'.'.join([str(first), *inner])}:{leaf.name}"
        if is_free:
            alike[leaf.name] += 1
            name = f"{_OPTIONAL}{leaf.name}{f' {alike[leaf.name]}' if alike[leaf.name] > 1 else ''}"
        named.append((name, leaf.middleware))
    return named


def _required(named: Sequence[tuple[str, object]]) -> list[str]:
    return [name for name, _ in named if not name.startswith(_OPTIONAL)]


def call_hooks(nodes: Iterable[Node], name: str, *args: Any) -> list[Exception]:
    """Calls the method of this name of every middleware that has it, in order, whatever fails; returns the errors.
    ``finish`` of middleware that write checkpoints comes before the others: the changes that other hooks make at the
    end of this run must not be in the state of a run that resumes."""
    leaves = list(all_leaves(nodes))
    if name == "finish":
        leaves.sort(key=lambda leaf: not isinstance(leaf.middleware, Checkpointer))
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


def raise_first(errors: Sequence[Exception], note: str) -> None:
    """Raises the first error, if any, with the others as notes; see `note_others`."""
    if errors:
        note_others(errors[0], errors[1:], note)
        raise errors[0]


def note_others(error: BaseException, others: Sequence[Exception], note: str) -> None:
    """Adds the other errors to an error as notes, each prefixed with `note`."""
    for other in others:
        add_note(error, f"{note}: {other!r}")
