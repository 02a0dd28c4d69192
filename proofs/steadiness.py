"""Whether what was learned stays: evaluations of each run in the 50,000 steps after it first reached its target."""

from __future__ import annotations

from collections.abc import Sequence

from proofs.runs import Record

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


def steadiness(records: Sequence[Record], target: float) -> str:
    """How many of the runs with `SPAN` steps after the target stay at it, and the lowest evaluation of one in them."""
    runs = [returns for record in records if (returns := after_target(record, target))]
    return f"{sum(min(run) >= target for run in runs)} of {len(runs)}, {min(map(min, runs)):,.1f}" if runs else ""
