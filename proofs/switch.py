"""From data to the environment: AWAC learns from a replay set, then continues in Pendulum-v1.

``python -m proofs.switch [--runs FOLDER]`` makes the two runs and writes ``docs/results/switch.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from minding.engine.run.curves import EVAL_RETURN, series
from minding.engine.run.metrics import read_metrics
from proofs import pages
from proofs.runs import LEARNING, ROOT, Job, Record, Results, commit, make_data, train

PRESET, ALGORITHM = "pendulum_awac", "awac"
ENV_STEP, FREQ = 5_000, 500


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m proofs.switch", description=__doc__)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    args = parser.parse_args(argv)
    folder = args.runs / "switch"
    offline = Job("learning", PRESET, 0, 0)
    data = f"policy.other.data={make_data(LEARNING[PRESET].recorded, offline.env_id, args.runs)}"
    first = train(offline, folder / "offline", [data])
    changes = (
        f"env.env_id={offline.env_id}", "chain=prior_data", "policy.model.normalize_obs=true",
        f"policy.eval.freq={FREQ}", "policy.eval.n_episode=20", f"run.begin_from={first.path}",
    )  # fmt: skip
    second = train(Job("learning", ALGORITHM, 0, ENV_STEP, changes), folder / "online", [data])
    record = {
        "offline": _curve(first.metrics, first.summary),
        "online": _curve(second.metrics, second.summary),
        "versions": commit(),
    }
    path = args.docs / "results" / "switch.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    pages.update(Results(args.docs))


def _curve(metrics: Path, summary: Path) -> Record:
    figures = json.loads(summary.read_text(encoding="utf-8"))
    steps, returns = series(read_metrics(metrics), EVAL_RETURN)
    return {
        figures["unit"]: [*steps.tolist(), figures[figures["unit"]]],
        "eval_return": [*returns.round(2).tolist(), round(figures["eval_return"], 2)],
        "train_iter_total": figures["train_iter"],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
