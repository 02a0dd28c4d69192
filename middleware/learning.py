"""The learn call of a policy, shared by the learning middleware."""

from __future__ import annotations

import dataclasses

import numpy as np

from minding.engine.chain.context import LearningContext
from minding.engine.data.batch import IndexedBatch
from minding.engine.types import Array, LearnMode, LearnOutput
from minding.middleware.inputs import metrics_in
from minding.middleware.schedules import Schedule


def learn_from(ctx: LearningContext, policy: LearnMode, batch: IndexedBatch, schedule: Schedule) -> LearnOutput:
    """Performs the gradient steps of a batch; writes train_output and train_iter, and returns what the policy did."""
    lag = ctx.optional("policy_lag", dict)
    if lag is not None:
        batch = dataclasses.replace(batch, lag=lag["max"])
    output = policy.forward(batch, progress=schedule.progress(_places(ctx, len(batch.index))))
    ctx.train_output = {**metrics_in(ctx, "a trainer"), **output.metrics, "grad_steps": output.steps}
    ctx.train_iter += output.steps
    return output


def _places(ctx: LearningContext, steps: int) -> int | Array:
    """Where these gradient steps are on the clock, for schedules.

    If the clock counts gradient steps, each has a place of its own. Else all are where the iteration began, as the
    data were collected after that: the first iteration learns at the start of a schedule, and none at its end.
    """
    if ctx.unit != "train_iter":
        return ctx.clock_begin
    return ctx.clock + np.arange(steps) if steps > 1 else ctx.clock
