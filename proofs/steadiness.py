"""Whether what was learned stays: evaluations of each run in the 50,000 steps after it first reached its target."""

from __future__ import annotations

from collections.abc import Sequence

from proofs.runs import LEARNING, Record, Results

SPAN = 50_000


def after_target(record: Record, target: float) -> list[float]:
    """Evaluations of a run after the first one at the target, up to the first that is `SPAN` environment steps later.

    The final evaluation is the last one. Empty if the run never reached the target, or ended less than `SPAN` steps
    later.
    """
    curve = record["curve"]
    if "env_step" not in curve:
        return []
    steps, returns = [*curve["env_step"], record["env_step"]], [*curve["eval_return"], record["eval_mean"]]
    first = next((i for i, value in enumerate(returns) if value >= target), len(steps) - 1)
    last = next((i for i, step in enumerate(steps) if step >= steps[first] + SPAN), first)
    return returns[first + 1 : last + 1]


def steadiness_table(results: Results) -> str:
    """Of each preset with a target: how many of its runs stay there, and the lowest evaluation of one."""
    lines = ["| preset | target | seeds with 50,000 steps after the target | stay at the target | lowest evaluation |"]
    lines.append("|---|---:|---:|---:|---:|")
    for proof in LEARNING.values():
        if proof.target is None:
            continue
        found = [after_target(record, proof.target) for record in results.of("learning", proof.preset)]
        runs = [returns for returns in found if returns]
        if runs:
            lines.append(f"| `{proof.preset}` | {proof.target:g} | {len(runs)} | {_cells(runs, proof.target)} |")
    return "\n".join([*lines, ""])


def _cells(runs: Sequence[Sequence[float]], target: float) -> str:
    return f"{sum(min(run) >= target for run in runs)} | {min(map(min, runs)):,.1f}"
