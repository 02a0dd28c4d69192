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
    """Performs the gradient steps of a batch; writes train_output and train_iter, and returns the policy's output."""
    lag = ctx.optional("policy_lag", dict)
    if lag is not None:
        batch = dataclasses.replace(batch, lag=lag["max"])
    output = policy.forward(batch, progress=schedule.progress(_places(ctx, len(batch.index))))
    ctx.train_output = {**metrics_in(ctx, "a trainer"), **output.metrics, "grad_steps": output.steps}
    ctx.train_iter += output.steps
    return output


def _places(ctx: LearningContext, steps: int) -> int | Array:
    """The clock at each of these gradient steps, for schedules.

    If the clock counts gradient steps, each step has its own value. Otherwise all steps have the clock at the beginning
    of the iteration, because the data were collected after it: the first iteration learns at the start of a schedule,
    and no iteration learns at its end.
    """
    if ctx.unit != "train_iter":
        return ctx.clock_begin
    return ctx.clock + np.arange(steps) if steps > 1 else ctx.clock
