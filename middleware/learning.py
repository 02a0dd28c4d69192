"""How middleware let a policy learn."""

from __future__ import annotations

import dataclasses

import numpy as np

from minding.engine.chain.context import LearningContext
from minding.engine.data.batch import IndexedBatch
from minding.engine.types import LearnMode, LearnOutput
from minding.middleware.schedules import Schedule


def learn_from(ctx: LearningContext, policy: LearnMode, batch: IndexedBatch, schedule: Schedule) -> LearnOutput:
    """Performs the gradient steps of a batch; writes train_output and train_iter, and returns what the policy did."""
    lag = ctx.optional("policy_lag", dict)
    if lag is not None:
        batch = dataclasses.replace(batch, lag=lag["max"])
    clock = ctx.clock
    # Where the clock counts gradient steps, each of them has a progress of its own.
    now = clock + np.arange(len(batch.index)) if ctx.unit == "train_iter" and len(batch.index) > 1 else clock
    output = policy.forward(batch, progress=schedule.progress(now))
    ctx.train_output = {**(ctx.train_output or {}), **output.metrics, "grad_steps": output.steps}
    ctx.train_iter += output.steps
    return output
