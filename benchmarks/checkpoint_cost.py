"""Times a save: milliseconds for a small net, and for a full buffer of which one interval's rows are new.

    python -m benchmarks.checkpoint_cost [--rows N] [--json PATH]

The buffer holds 1e6 HalfCheetah transitions and gets 1,000 new ones between two saves: at one gradient step a
transition, that is the default interval of `run.ckpt_freq`. Saves are pruned to the three newest, as in a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.batch import Field
from minding.engine.buffers import UniformBuffer
from minding.engine.checkpoint import link_source, prune_checkpoints, save_checkpoint
from minding.engine.types import StateDict

ROWS, INTERVAL, SAVES, KEEP_LAST = 1_000_000, 1000, 15, 3
HALF_CHEETAH = {
    "obs": Field((17,)),
    "action": Field((6,)),
    "reward": Field(),
    "next_obs": Field((17,)),
    "terminated": Field((), "bool"),
    "discount": Field(),
}


def small_net() -> StateDict:
    """Two 64-64 networks with their optimizer's two moments, as arrays."""
    shapes = {"w1": (4, 64), "b1": (64,), "w2": (64, 64), "b2": (64,), "w3": (64, 2), "b3": (2,)}
    parts = [f"{net}.{slot}" for net in ("actor", "critic") for slot in ("value", "moment1", "moment2")]
    return {part: {name: np.ones(shape, np.float32) for name, shape in shapes.items()} for part in parts}


def transitions(count: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Random rows of HALF_CHEETAH."""
    return {name: rng.random((count, *field.shape)).astype(field.dtype) for name, field in HALF_CHEETAH.items()}


def full_buffer(rows: int, rng: np.random.Generator) -> UniformBuffer:
    buffer = UniformBuffer(rows, HALF_CHEETAH)
    for start in range(0, rows, 50_000):
        buffer.push(transitions(min(50_000, rows - start), rng))
    return buffer


def times_ms(state: Callable[[], StateDict], saves: int = SAVES) -> list[float]:
    """Milliseconds of each of `saves` saves to one folder."""
    taken = []
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        for number in range(saves):
            content = state()
            start = time.perf_counter()
            save_checkpoint(folder / f"iter_{number}", content, {}, previous=link_source(folder))
            prune_checkpoints(folder, KEEP_LAST)
            taken.append((time.perf_counter() - start) * 1000)
    return taken


def measure(rows: int) -> list[dict[str, Any]]:
    """A row of figures for each case; the first two saves write all blocks, the others only those with new rows."""
    rng = np.random.default_rng(0)
    buffer = full_buffer(rows, rng)

    def with_buffer() -> StateDict:
        buffer.push(transitions(INTERVAL, rng))
        return {"net": small_net(), "buffer": buffer.state_dict()}

    cases = {"small net": times_ms(small_net), f"with {rows:,} transitions": times_ms(with_buffer)}
    return [
        {
            "case": case,
            "first_ms": round(times[0], 1),
            "median_ms": round(statistics.median(times[2:]), 1),
            "max_ms": round(max(times[2:]), 1),
        }
        for case, times in cases.items()
    ]


def main() -> None:
    """Prints the table; writes it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"transitions in the buffer ({ROWS})")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there too")
    args = parser.parse_args()
    rows = measure(args.rows)
    print(f"{'case':<28} {'first, ms':>10} {'median, ms':>11} {'slowest, ms':>12}")
    for row in rows:
        print(f"{row['case']:<28} {row['first_ms']:>10.1f} {row['median_ms']:>11.1f} {row['max_ms']:>12.1f}")
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
