"""Crashes, failing disks and damaged files at every point of writing checkpoints.

    python -m proofs.crashes

A run's checkpoints in small (`crash_scenario`: new ones, replaced ones, linked blocks, pruning) are written again and
again, each time interrupted at another call that changes the disk. Afterwards everything that was promised must hold.
Takes three to four minutes on an idle machine; the figures go to ``docs/results/crashes.json``.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import logging
import os
import platform
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.checkpoint import BlockArray, save_checkpoint
from proofs import crash_scenario
from proofs import pages as proof_pages
from proofs.crash_scenario import BrokenPromiseError
from proofs.damage import find_damages
from proofs.disk_faults import CountingOs, DyingOs, FailingOs, PowerCutOs, installed
from proofs.runs import Results, commit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "crashes.json"
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
DEATHS: dict[str, type[DyingOs]] = {"killed": DyingOs, "power cut": PowerCutOs}
CRASHES, ERRORS_TRIED, DAMAGES = 1200, 900, 1200
BIG_ROWS, BIG_WIDTH, BIG_BLOCK = 1_000_000, 43, 6096
"""HalfCheetah transitions: two observations of 17, 6 actions and 3 more numbers, in blocks of 1 MiB."""

Breaks = list[str]
"""Broken promises, in words."""


def count_calls() -> int:
    """How many calls of an undisturbed run change the disk."""
    with tempfile.TemporaryDirectory() as folder, installed(CountingOs()) as calls:
        crash_scenario.run(Path(folder) / "ckpt", lambda place: None)
        return calls.calls


def fail_once(at: int, number: int, lasting: bool) -> str | None:
    """A run whose disk fails at call `at`; returns the broken promise, if there is one."""
    done: list[int] = []
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "ckpt"
        with installed(FailingOs(at, number, lasting)):
            crash_scenario.run(folder, done.append)
        return broken_promise(folder, done)


def die_once(kind: str, at: int, seed: int) -> str | None:
    """A run in a separate process that ends at call `at`; returns the broken promise, if there is one."""
    if "mindspore" in sys.modules:
        raise RuntimeError("a process that has loaded MindSpore must not fork; run this in a fresh one")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "ckpt"
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _die(folder, DEATHS[kind](at, seed), writer)
        os.close(writer)
        with open(reader, "rb") as pipe:
            done = list(pipe.read())
        _, status = os.waitpid(child, 0)
        if status:
            return f"the run raised (exit status {status})"
        return broken_promise(folder, done)


def _die(folder: Path, death: DyingOs, writer: int) -> None:
    """In the child: a run to its death; each finished step is a byte in the pipe."""
    status = 1
    try:
        with installed(death):
            crash_scenario.run(folder, lambda place: os.write(writer, bytes([place])))
        status = 0
    finally:
        os._exit(status)


def broken_promise(folder: Path, done: list[int]) -> str | None:
    try:
        # Beyond doubt here: what the machine's own disk does with a sync. Without them it is a hundred times faster.
        with installed(CountingOs()):
            crash_scenario.check(folder, done)
    except BrokenPromiseError as error:
        return str(error)
    return None


def prove_errors(calls: int, at_most: int) -> tuple[int, Breaks]:
    """A disk that fails at random calls, with each error, once and for good; returns (how many, breaks)."""
    cases = list(itertools.product(range(1, calls + 1), ERRORS, (False, True)))
    cases = random.Random(0).sample(cases, min(at_most, len(cases)))
    found = ((f"call {at}, {errno.errorcode[number]}", fail_once(at, number, lasting)) for at, number, lasting in cases)
    return len(cases), _breaks(found)


def prove_crashes(calls: int, count: int) -> tuple[int, Breaks]:
    """Deaths of each kind, spread evenly over all calls; returns (how many, breaks)."""
    each = -(-count // len(DEATHS))
    points = np.linspace(1, calls, each, dtype=int) if each < calls else np.resize(np.arange(1, calls + 1), each)
    cases = [(kind, int(at)) for at in points for kind in DEATHS]
    found = ((f"{kind} at call {at}", die_once(kind, at, seed)) for seed, (kind, at) in enumerate(cases))
    return len(cases), _breaks(found)


def _breaks(found: Iterable[tuple[str, str | None]]) -> Breaks:
    return [f"{where}: {what}" for where, what in found if what is not None]


def prove_damage(count: int) -> tuple[Breaks, dict[str, float]]:
    """Damages of a small checkpoint; returns (those missed, seconds of a fallback)."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        for n in (1, 2, 3):
            crash_scenario.save(f"iter_{n}", n).act(folder)
        missed, seconds = find_damages(folder, count, seed=0)
    return missed, _summary(seconds)


def prove_big_damage(rows: int, count: int = 6) -> tuple[Breaks, dict[str, float]]:
    """The same for a full buffer of HalfCheetah transitions."""
    table = np.random.default_rng(0).standard_normal((rows, BIG_WIDTH), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for n in (1, 2):
            ring = BlockArray(table, BIG_BLOCK, [n] * -(-rows // BIG_BLOCK))
            save_checkpoint(Path(folder) / f"iter_{n}", {"ring": ring}, {})
        missed, seconds = find_damages(Path(folder), count, seed=1)
    return missed, _summary(seconds)


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    return {"median_s": round(statistics.median(seconds), 4), "max_s": round(max(seconds), 4)}


def measure(crashes: int, errors: int, damages: int, big_rows: int) -> dict[str, Any]:
    """All proofs; the figures as JSON values."""
    calls = count_calls()
    crashed, crash_breaks = prove_crashes(calls, crashes)
    failed, error_breaks = prove_errors(calls, errors)
    missed, fallback = prove_damage(damages)
    big_missed, big_fallback = prove_big_damage(big_rows)
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "safetensors")},
            **commit(),
        },
        "calls_of_a_run": calls,
        "crashes": crashed,
        "failing_disks": failed,
        "damages": damages,
        "broken_promises": [*crash_breaks, *error_breaks],
        "damages_missed": [*missed, *big_missed],
        "fallback": fallback,
        "fallback_big": {"rows": big_rows, **big_fallback},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures and writes them down; 1 if anything that is promised does not hold."""
    parser = argparse.ArgumentParser(prog="python -m proofs.crashes", description=__doc__)
    parser.add_argument("--crashes", type=int, default=CRASHES, help=f"processes that die ({CRASHES})")
    parser.add_argument("--errors", type=int, default=ERRORS_TRIED, help=f"failing disks ({ERRORS_TRIED})")
    parser.add_argument("--damages", type=int, default=DAMAGES, help=f"damaged files ({DAMAGES})")
    parser.add_argument("--big-rows", type=int, default=BIG_ROWS, help=f"of the large buffer ({BIG_ROWS})")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    args = parser.parse_args(argv)
    # A damaged checkpoint is skipped loudly, here thousands of times.
    logging.getLogger("minding.ckpt").setLevel(logging.ERROR)
    figures = measure(args.crashes, args.errors, args.damages, args.big_rows)
    text = json.dumps(figures, indent=2)
    args.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    proof_pages.update(Results(ROOT / "docs"))
    return 1 if figures["broken_promises"] or figures["damages_missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
