"""A run's checkpoints in small, and what must hold of them at every moment of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint import (
    BlockArray,
    link_source,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from minding.engine.errors import CheckpointError

ROWS, BLOCK_ROWS, PUSHED = 40, 8, 7
"""Of a ring: its rows, those in one file, and those that are new in the next state."""


class BrokenPromiseError(AssertionError):
    """What was promised of checkpoints does not hold; says what was found."""


def table_of(n: int) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The n-th contents of the ring, and for each block the contents in which it last changed."""
    table, versions = np.zeros((ROWS, 3), np.float32), [0] * (ROWS // BLOCK_ROWS)
    for step in range(1, n + 1):
        for row in np.arange(PUSHED * step, PUSHED * (step + 1)) % ROWS:
            table[row], versions[row // BLOCK_ROWS] = step, step
    return table, versions


def state_of(n: int) -> dict[str, Any]:
    """The n-th state of the run."""
    table, versions = table_of(n)
    net = {"weight": np.arange(n, n + 12, dtype=np.float32).reshape(4, 3), "bias": np.array(float(n))}
    return {"n": n, "net": net, "ring": BlockArray(table, BLOCK_ROWS, versions)}


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing the run does with its checkpoints.

    Attributes:
      act: does it; given the folder of checkpoints.
      name: of the checkpoint that it writes, None where it writes none.
      n: the state that it writes.
    """

    act: Callable[[Path], None]
    name: str | None = None
    n: int = 0


def save(name: str, n: int) -> Step:
    """Writes state n as the checkpoint `name`, new or in place of an older one."""
    return Step(
        lambda folder: save_checkpoint(folder / name, state_of(n), {"n": n}, previous=link_source(folder)), name, n
    )


def prune(keep_last: int) -> Step:
    return Step(lambda folder: prune_checkpoints(folder, keep_last))


STEPS = (
    *(save("iter_1", 1), save("best", 1), save("iter_2", 2), save("iter_3", 3), prune(2)),
    *(save("best", 3), save("iter_3", 4), save("iter_5", 5), prune(1), save("iter_5", 6)),
)


def run(folder: Path, done: Callable[[int], object]) -> None:
    """Takes all steps; continues after one that the disk refuses, as training does.

    Args:
      folder: of the checkpoints; need not exist.
      done: is called with the place of each step that was finished.
    """
    for place, step in enumerate(STEPS):
        try:
            step.act(folder)
        except OSError:
            continue
        done(place)


def check(folder: Path, done: list[int]) -> None:
    """Holds the checkpoints in `folder` against the steps known to be finished.

    Raises:
      BrokenPromiseError: if a checkpoint is not whole, holds what was never saved under its name, or is older than
        one whose save had returned; or if the next save fails or leaves rubbish beside it.
    """
    saved = [STEPS[place] for place in done if STEPS[place].name]
    for path in list_checkpoints(folder):
        _holds(path, [step.n for step in STEPS if step.name == path.name])
    periodic = max((step.n for step in saved if step.name != "best"), default=0)
    if periodic:
        _holds(_newest(folder), range(periodic, len(STEPS)))
    best = max((step.n for step in saved if step.name == "best"), default=0)
    if best:
        _holds(folder / "best", [n for n in (1, 3) if n >= best])
    save_checkpoint(folder / "iter_9", state_of(9), {})
    _holds(_newest(folder), [9])
    rubbish = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    if rubbish:
        raise BrokenPromiseError(f"a save left {rubbish} of an interrupted one")


def _newest(folder: Path) -> Path:
    try:
        return newest_checkpoint(folder)
    except CheckpointError as error:
        raise BrokenPromiseError(f"no checkpoint can be loaded: {error}") from error


def _holds(path: Path, allowed: Any) -> None:
    """Raises unless the checkpoint is whole and holds one of the allowed states, whole."""
    try:
        found, _ = load_checkpoint(path)
    except CheckpointError as error:
        raise BrokenPromiseError(f"{path.name} is damaged: {error}") from error
    if found["n"] not in allowed:
        raise BrokenPromiseError(f"{path.name} holds state {found['n']}; expected one of {list(allowed)}")
    expected = state_of(found["n"])
    pairs = [(found["ring"], np.asarray(expected["ring"])), *((found["net"][k], v) for k, v in expected["net"].items())]
    if not all(np.array_equal(one, other) for one, other in pairs):
        raise BrokenPromiseError(f"{path.name}: its arrays are a mixture of states")
