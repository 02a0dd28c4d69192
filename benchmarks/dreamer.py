"""Time of a whole update of Dreamer beside eager PyTorch: ``python -m benchmarks.dreamer``.

An update draws 16 sequences of 32 transitions, learns the world model from them, imagines 15 steps from 256 states, and
learns actor and critic from these. Both sides take 10 updates first, and then time five windows. Processes of both
sides alternate, A B A B, with one thread each; the report gives medians over the pairs and the median ratio, of
processor time and of the clock. The latents are drawn from the observation alone, and as in the paper (`full`); our
default is compared with either.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks.dreamer_work import (
    BATCH,
    BINS,
    CLASSES,
    DETER,
    HORIZON,
    LATENTS,
    LENGTH,
    LIMIT,
    ROWS,
    STARTS,
    UNITS,
    WARM_UP,
    rows,
    timed,
)
from benchmarks.pairs import ROOT, RunFailed, call, find_peers_python
from benchmarks.report import describe_machine

TARGET = 1.5
PAIRS = (("observation", "observation"), ("observation", "full"), ("full", "full"))
"""Which posterior ours and the peer have."""
UPDATES = 100
_TIMEOUT = 600.0


def ours(posterior: str, updates: int) -> dict[str, Any]:
    """Milliseconds per update in this process."""
    from minding.configs import compile_run
    from minding.configs.chains.sequence_replay import sequence_buffer
    from minding.policies import get_policy_class

    model = {
        **{"deter": DETER, "latents": LATENTS, "classes": CLASSES, "hidden": [UNITS, UNITS], "norm": "layer"},
        **{"bins": BINS, "bin_limit": LIMIT, "posterior": posterior},
    }
    learn = {"batch_size": BATCH, "length": LENGTH, "horizon": HORIZON, "starts": STARTS}
    sections = (("model", model), ("learn", learn))
    keys = [f"policy.{section}.{key}={value}" for section, values in sections for key, value in values.items()]
    cfg = compile_run("pendulum_dreamer", [*keys, f"policy.other.buffer_size={ROWS}", "run.jit_threads=1"])
    policy = get_policy_class("dreamer")(cfg)
    buffer, given = sequence_buffer(cfg, policy), rows()
    missing = buffer.fields.keys() - given.keys()
    if missing:
        raise RunFailed(f"benchmarks.dreamer_work has no rows of {sorted(missing)}: add them to rows()")
    # Of one environment.
    place = {"sequence": np.zeros(ROWS, np.int64), "begun": given["begun"], "ended": given["ended"]}
    buffer.push({**{name: given[name] for name in buffer.fields}, **place})
    losses: list[list[float]] = []

    def update() -> None:
        found = policy.learn_mode.forward(buffer.sample(1, BATCH)).metrics
        losses.append([float(found[name]) for name in ("model_loss", "actor_loss", "critic_loss")])

    figures = timed(update, updates)
    return {**figures, "first_losses": losses[0], "last_losses": losses[-1]}


def compare(posteriors: tuple[str, str], pairs: int, updates: int, python: str) -> pages.Record:
    """One line of the report."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    sides = {
        "ours": (
            [sys.executable, "-m", "benchmarks.dreamer", "--one", posteriors[0]],
            {"PYTHONPATH": str(ROOT / "src")},
        ),
        "peer": ([python, "-m", "benchmarks.peers.torch_dreamer", posteriors[1]], {"PYTHONPATH": "", **threads}),
    }
    found: dict[str, list[pages.Record]] = {name: [] for name in sides}
    for _ in range(pairs):
        for name, (command, environment) in sides.items():
            found[name].append(json.loads(call([*command, str(updates)], environment, _TIMEOUT).splitlines()[-1]))
    line: pages.Record = {"ours": posteriors[0], "peer": posteriors[1], "pairs": pairs}
    for clock in ("cpu_ms", "wall_ms"):
        values = {name: [each[clock] for each in found[name]] for name in sides}
        ratios = [peer / ours for ours, peer in zip(values["ours"], values["peer"])]
        line[clock] = {
            **{name: round(statistics.median(each), 2) for name, each in values.items()},
            **{"ratio": round(statistics.median(ratios), 3), "lowest": round(min(ratios), 3)},
            "highest": round(max(ratios), 3),
        }
    return line


def main(argv: list[str] | None = None) -> int:
    """Prints a line of JSON per comparison; a whole run writes them and the table of docs/algorithms/dreamer.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dreamer", description=__doc__)
    parser.add_argument("--peer-python", help="interpreter that has PyTorch; that of benchmarks.run by default")
    parser.add_argument("--pairs", type=int, default=5, help="pairs per comparison (5)")
    parser.add_argument("--updates", type=int, default=UPDATES, help=f"timed updates of a process ({UPDATES})")
    parser.add_argument("--out", type=Path, help="file of the report, in place of the published one")
    parser.add_argument("--one", nargs=2, metavar=("POSTERIOR", "UPDATES"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(ours(args.one[0], int(args.one[1]))))
        return 0
    try:
        python = args.peer_python or find_peers_python(print)
        record: pages.Record = {
            "name": "dreamer",
            **describe_machine(python),
            "updates": args.updates,
            "warm_up": WARM_UP,
            "rows": [],
        }
        for posteriors in PAIRS:
            record["rows"].append(compare(posteriors, args.pairs, args.updates, python))
            print(json.dumps(record["rows"][-1]), flush=True)
    except RunFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{pages.dreamer_table(record)}")
    pages.publish("dreamer", record, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
