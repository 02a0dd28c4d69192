"""The scores of all proofs in the format of ``minding compare --scores``: ``python -m proofs.scores > scores.json``."""

from __future__ import annotations

import json
from typing import Any

from minding.configs import PRESETS, load_preset
from minding.engine.run.comparison import SUITE, scores_of_run
from proofs.runs import ROOT, Record, Results


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
    return scores_of_run(record["curve"][clock], record["curve"]["eval_return"], record["eval_mean"])


if __name__ == "__main__":
    print(json.dumps(scores(Results(ROOT / "docs")), indent=1))
