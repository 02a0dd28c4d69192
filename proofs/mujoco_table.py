"""The table of MuJoCo: what the queue has measured beside published scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.configs import load_preset
from minding.engine.run.aggregates import aggregate
from proofs.queue import QUEUE, STEPS
from proofs.runs import Record, Results

PUBLISHED = "mujoco"
"""Name of the published scores in ``published.json``: by source, ``[mean, deviation]`` or ``[mean]`` of a preset."""
NOT_MEASURED = "not measured"


def mujoco_table(results: Results) -> str:
    """One row per preset of the queue: scores over seeds, in both definitions, beside the published ones.

    Returns:
      The table, then what each column of published scores is.
    """
    sources = (results.single("published") or {}).get(PUBLISHED, {})
    head = ["algorithm", "environment", "seeds", "mean", "IQM", "95 % interval of the IQM", "best", *sources]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
    for preset in dict.fromkeys(each.preset for each in QUEUE):
        cfg = load_preset(preset)
        cells = [cfg.policy.type.upper(), cfg.env.env_id, *_measured(results.of("learning", preset))]
        cells += [_published(source["scores"].get(preset, ())) for source in sources.values()]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {name}: {source['note']} [Source]({source['source']})." for name, source in sources.items()]
    return "\n".join([*lines, "", *notes, ""])


def best_of_means(records: Sequence[Record]) -> tuple[float, float]:
    """The highest mean over seeds of the evaluations on the way, and the deviation over seeds at that step."""
    curves = [dict(zip(record["curve"]["env_step"], record["curve"]["eval_return"])) for record in records]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    returns = np.array([[curve[step] for step in common] for curve in curves])
    best = int(returns.mean(axis=0).argmax())
    return float(returns[:, best].mean()), float(returns[:, best].std())


def _measured(records: Sequence[Record]) -> list[str]:
    """Seeds, mean, IQM, interval, best; from rows of whole runs that say their best evaluation."""
    whole = [record for record in records if record["env_step"] >= STEPS and "best" in record]
    if not whole:
        return ["0", NOT_MEASURED, "", "", ""]
    found = aggregate([record["eval_mean"] for record in whole])
    interval = f"{found.iqm.low:,.0f} to {found.iqm.high:,.0f}" if found.n > 1 else ""
    mean, deviation = best_of_means(whole)
    best = f"{mean:,.0f} ± {deviation:,.0f}" if found.n > 1 else f"{mean:,.0f}"
    return [str(found.n), f"{found.mean.value:,.0f}", f"{found.iqm.value:,.0f}", interval, best]


def _published(score: Sequence[float]) -> str:
    return " ± ".join(f"{value:,.0f}" for value in score)
