"""The scores of runs as JSON that marl-eval reads: ``python -m proofs.scores > scores.json``.

The file has the structure of Gorsane et al. (2022), "Towards a standardised performance evaluation protocol for
cooperative MARL", https://arxiv.org/abs/2209.10485, appendix: environment, task, algorithm, run. The means of the
evaluations on the way are the steps of a run, and that of its final evaluation is its absolute metric. marl-eval makes
of it the matrices of scores that rliable takes. Others add themselves under a name of their own.
"""

from __future__ import annotations

import json
from typing import Any

from minding.configs import PRESETS, load_preset
from proofs.runs import ROOT, Record, Results

SUITE = "minding"
METRIC = "mean_episode_return"


def scores(results: Results) -> dict[str, Any]:
    """All learning proofs of presets by task and algorithm; presets of the same two are apart by their names."""
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for preset in results.presets("learning"):
        if preset in PRESETS:
            runs = {f"seed_{record['seed']}": _run(record) for record in results.of("learning", preset)}
            tasks.setdefault(load_preset(preset).env.env_id, {})[f"{SUITE} {preset}"] = runs
    return {SUITE: tasks}


def _run(record: Record) -> dict[str, Any]:
    """The evaluations of a run; one that learns from recorded data counts gradient steps."""
    clock = next(key for key in record["curve"] if key != "eval_return")
    evaluations = zip(record["curve"][clock], record["curve"]["eval_return"])
    steps = {
        f"step_{number}": {"step_count": int(count), METRIC: [value]}
        for number, (count, value) in enumerate(evaluations)
    }
    return {**steps, "absolute_metrics": {METRIC: [record["eval_mean"]]}}


if __name__ == "__main__":
    print(json.dumps(scores(Results(ROOT / "docs")), indent=1))
