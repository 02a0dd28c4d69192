"""Gradient steps per second of processor time by the number of critics: ``python -m benchmarks.critics``.

SAC beside algorithms with N critics, on 17 numbers and six actions, with the networks of their defaults, two layers of
256 units, and minibatches of 256 rows. Learn calls of all of them alternate in one process. The results go to
``docs/results/critics.json`` and into the table of ``docs/algorithms/redq.md``.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from benchmarks import pages
from benchmarks.learners import VECTOR, batch_of, policy_of
from benchmarks.pairs import ROOT
from benchmarks.report import cpu_model, own_versions

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "SAC, 2 critics": ("sac", {}),
    **{f"REDQ, {n} critics": ("redq", {"n_critics": n}) for n in (2, 5, 10)},
    **{f"TQC, {n} critics": ("tqc", {"n_critics": n}) for n in (2, 5, 10)},
}
STEPS = 20
"""Gradient steps of a call; REDQ updates its actor in one of them."""
ROUNDS = 7


def main() -> None:
    ready = {}
    for name, (kind, model) in CASES.items():
        policy = policy_of(kind, VECTOR, model)
        ready[name] = policy, batch_of(policy, STEPS, 256)
        # Compiles.
        policy.learn_mode.forward(ready[name][1])
    rates: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(ROUNDS):
        for name, (policy, batch) in ready.items():
            begin = time.process_time()
            policy.learn_mode.forward(batch)
            rates[name].append(STEPS / (time.process_time() - begin))
    rows = [
        {"name": name, "median": statistics.median(each), "lowest": min(each), "highest": max(each)}
        for name, each in rates.items()
    ]
    found = {"rows": rows, "rounds": ROUNDS, "cpu": cpu_model(), "load": os.getloadavg()[0], "versions": own_versions()}
    pages.write("critics", found, ROOT / "docs")
    print(pages.critics_table(found))


if __name__ == "__main__":
    main()
