"""What each part of Rainbow is worth: trains it whole, and with one part removed at a time.

``python -m proofs.ablation``, at the root; continues where it stopped. Each run is a line of
``docs/results/ablation.jsonl``; the table stands on the page of Rainbow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from proofs import pages as proof_pages
from proofs.runs import ABLATION, LEARNING, ROOT, Job, Results, RunFailed, run_learning

PRESET = "acrobot_rainbow"
PARTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "double Q-learning": ("policy.learn.double=false",),
    "dueling streams": ("policy.model.dueling=false",),
    "returns of several steps": ("policy.learn.nstep=1",),
    "priorities": ("policy.other.replay=uniform",),
    "noisy layers": ("policy.model.noisy=false",),
    "distribution of returns": ("policy.model.distributional=false",),
}
"""What is removed, and the settings that do it; without noisy layers the agent explores by epsilon-greedy."""
SEEDS = 3


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs.ablation", description=__doc__)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 if a run did not end well."""
    args = parse_arguments(argv)
    results = Results(args.docs)
    failed = False
    for seed in range(SEEDS):
        for removed, changes in PARTS.items():
            job = Job(ABLATION, PRESET, seed, LEARNING[PRESET].env_step, changes)
            if results.has(job):
                continue
            try:
                record = {"removed": removed, **run_learning(job, args.runs / ABLATION / removed)}
            except RunFailed as error:
                print(f"{job} without {removed}: FAILED\n{error}", file=sys.stderr, flush=True)
                failed = True
                continue
            results.append(ABLATION, record)
            proof_pages.update(results)
            print(f"{job} without {removed}: {proof_pages.one_line(ABLATION, record)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
