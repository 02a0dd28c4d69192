"""How middleware let a policy learn."""

from __future__ import annotations

import dataclasses

from minding.engine.chain.context import LearningContext
from minding.engine.data.batch import IndexedBatch
from minding.engine.types import LearnMode, LearnOutput
from minding.middleware.schedules import Schedule


def learn_from(ctx: LearningContext, policy: LearnMode, batch: IndexedBatch, schedule: Schedule) -> LearnOutput:
    """Performs the gradient steps of a batch; writes train_output and train_iter, and returns what the policy did."""
    lag = ctx.optional("policy_lag")
    if lag is not None:
        batch = dataclasses.replace(batch, lag=lag["max"])
    output = policy.forward(batch, progress=schedule.progress(ctx.clock))
    ctx.train_output = {**(ctx.train_output or {}), **output.metrics, "grad_steps": output.steps}
    ctx.train_iter += output.steps
    return output
