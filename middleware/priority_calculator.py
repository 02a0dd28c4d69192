"""Priorities of newly collected rows."""

import dataclasses
from collections.abc import Callable

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data.batch import PRIORITY
from minding.engine.data.rollout import Rollout
from minding.engine.errors import NonFiniteError, ShapeError
from minding.engine.types import Array
from minding.middleware.ctx_fields import rollout_in


@declare(
    role="collect",
    reads=("trajectories",),
    writes=("trajectories",),
    leaves=("trajectories.prioritized",),
    refuses=("trajectories.prioritized",),
)
def priority_calculator(priority_calculation_fn: Callable[[Rollout], Array]) -> Callable[[OnlineRLContext], None]:
    """Computes priorities of the rollout's steps, which `data_pusher` passes to a buffer that draws by priority.

    Without it, new rows have the highest priority so far until they are first used. Put it after every middleware that
    changes rewards and before `data_pusher`.

    Reads: trajectories.
    Writes: trajectories (`priority` in the record).

    Args:
      priority_calculation_fn: function that returns the priorities of a rollout, float (T, N), at least 0, such as the
        absolute errors of `engine.data.returns.nstep_errors`; the rows of resets are ignored.
    """

    def calculate(ctx: OnlineRLContext) -> None:
        rollout = rollout_in(ctx, "priority_calculator")
        priority = np.asarray(priority_calculation_fn(rollout), np.float32)
        if priority.shape != rollout.shape:
            raise ShapeError(
                f"priority_calculator: expected one priority per step, (T, N) = {rollout.shape}, got {priority.shape} "
                "from priority_calculation_fn"
            )
        bad = np.argwhere(rollout.transitions() & ~(np.isfinite(priority) & (priority >= 0.0)))
        if len(bad):
            t, n = bad[0].tolist()
            raise NonFiniteError(
                f"priority_calculator: expected priorities of at least 0, got {priority[t, n]} for step {t} of "
                f"environment {n} from priority_calculation_fn"
            )
        ctx.trajectories = dataclasses.replace(rollout, record={**rollout.record, PRIORITY: priority})

    return calculate
