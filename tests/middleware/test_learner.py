"""Learning from replay."""

import dataclasses
import json
import logging
import types

import numpy as np
import pytest
from fakes import ReadingLearner

from minding.engine.buffers import Priority, ReplayBuffer, Sequences
from minding.engine.chain.context import OnlineRLContext
from minding.engine.config.config import Config, updates_per_step
from minding.engine.data.batch import Field
from minding.middleware import OffPolicyLearner

FIELDS = {"number": Field()}


@pytest.fixture
def parts(counting_config):
    def make(capacity=100, buffer_fields=FIELDS, **overrides):
        settings = {"warmup": 10, "batch_size": 4, "update_per_collect": 3, **overrides}
        learn = {f"policy.learn.{key}": value for key, value in settings.items()}
        cfg = counting_config(**{**learn, "run.max_env_step": 100})
        learner, buffer = ReadingLearner(FIELDS), ReplayBuffer(capacity, buffer_fields)
        return OffPolicyLearner(cfg, learner, buffer), learner, buffer

    return make


def numbers(count, start=0):
    return {"number": np.arange(start, start + count, dtype=np.float32)}


def test_it_waits_for_the_warm_up_and_says_so_once(parts, caplog):
    middleware, learner, buffer = parts()
    with caplog.at_level(logging.INFO, "minding.learner"):
        for count in (0, 5, 4):
            buffer.push(numbers(count))
            ctx = OnlineRLContext()
            middleware(ctx)
            assert (ctx.train_output, ctx.train_iter, learner.steps) == (None, 0, [])
    assert [record.message for record in caplog.records] == ["learning starts when the buffer holds 10 transitions"]
    buffer.push(numbers(1))
    middleware(ctx)
    assert ctx.train_iter == 3


def test_a_buffer_that_nobody_fills_is_named_once(parts, caplog):
    middleware, _, _ = parts()
    with caplog.at_level(logging.WARNING, "minding.learner"):
        for env_step in (8, 10, 12):
            middleware(OnlineRLContext(env_step=env_step))
    (warning,) = caplog.records
    assert "the learner's buffer is empty after 10 environment steps, and nothing is learned yet" in warning.message
    # One that fills more slowly than the steps are counted is on its way.
    middleware, _, buffer = parts()
    buffer.push(numbers(1))
    caplog.clear()
    middleware(OnlineRLContext(env_step=20))
    assert [record.levelname for record in caplog.records if record.levelname == "WARNING"] == []


def test_it_makes_the_configured_steps_on_rows_of_the_buffer(parts):
    middleware, learner, buffer = parts()
    buffer.push(numbers(10, start=100))
    ctx = OnlineRLContext(env_step=25, train_iter=6)
    ctx.begin_iteration()
    ctx.env_step += 10
    middleware(ctx)
    assert [len(step["number"]) for step in learner.steps] == [4, 4, 4]
    assert set(np.concatenate([step["number"] for step in learner.steps])) <= set(range(100, 110))
    assert (ctx.train_iter, ctx.train_output, learner.progress) == (9, {"loss": 0.5, "grad_steps": 3}, [0.25])


class Judge(ReadingLearner):
    """Gives a row the size of its number as its priority."""

    prioritized = True

    def forward(self, batch, progress=0.0):
        output = super().forward(batch, progress)
        numbers = np.stack([step["number"] for step in self.steps[-output.steps :]])
        return dataclasses.replace(output, priorities=numbers)


def test_a_prioritized_buffer_learns_the_drawn_rows_priorities(counting_config):
    learn = {"warmup": 4, "batch_size": 4, "update_per_collect": 3}
    cfg = counting_config(**{f"policy.learn.{key}": value for key, value in learn.items()}, **{"run.max_env_step": 100})
    buffer = ReplayBuffer(4, FIELDS, priority=Priority(alpha=1.0))
    buffer.push(numbers(4, start=6))
    middleware = OffPolicyLearner(cfg, Judge(FIELDS), buffer)
    assert middleware.requirements() == []
    middleware(OnlineRLContext())
    # Equal priorities draw each row once; then they are the numbers.
    assert buffer.state_dict()["priorities"] == pytest.approx([6, 7, 8, 9])


# Ratio of updates to environment steps


def trained(middleware, ctx, env_steps):
    """Gradient steps of iterations that end at these environment steps."""
    made = []
    for env_step in env_steps:
        before, ctx.env_step, ctx.train_output = ctx.train_iter, env_step, None
        middleware(ctx)
        made.append(ctx.train_iter - before)
    return made


def test_gradient_steps_follow_environment_steps(parts):
    middleware, _, buffer = parts(updates_per_step=0.5)
    ctx = OnlineRLContext()
    assert trained(middleware, ctx, (4, 8)) == [0, 0]
    buffer.push(numbers(10))
    # A call makes 3 steps: due are 0.5 (steps - 10).
    assert trained(middleware, ctx, (10, 14, 16, 17, 40, 41)) == [0, 0, 3, 0, 12, 0]


def test_a_resumed_run_goes_on_with_the_same_steps(parts):
    steps = (10, 16, 30, 36, 51)
    middleware, _, buffer = parts(updates_per_step=0.5)
    buffer.push(numbers(10))
    whole = trained(middleware, OnlineRLContext(), steps)
    assert sum(whole) == 18
    middleware, _, buffer = parts(updates_per_step=0.5)
    buffer.push(numbers(10))
    ctx = OnlineRLContext()
    assert trained(middleware, ctx, steps[:3]) == whole[:3]
    again, _, buffer = parts(updates_per_step=0.5)
    again.load_state_dict(json.loads(json.dumps(middleware.state_dict())))
    buffer.push(numbers(10))
    assert trained(again, OnlineRLContext(train_iter=ctx.train_iter), steps[3:]) == whole[3:]


def resumed(parts, saved, ctx, **overrides):
    """A learner with an empty buffer that goes on from the state of another, and where the run is then."""
    middleware, _, buffer = parts(**overrides)
    middleware.load_state_dict(saved.state_dict())
    return middleware, buffer, OnlineRLContext(env_step=ctx.env_step, train_iter=ctx.train_iter)


def test_what_a_refill_of_the_buffer_took_is_not_made_up_for(parts):
    middleware, _, buffer = parts(updates_per_step=0.5)
    buffer.push(numbers(10))
    ctx = OnlineRLContext()
    assert trained(middleware, ctx, (10, 100, 104)) == [0, 45, 0]
    again, buffer, ctx = resumed(parts, middleware, ctx, updates_per_step=0.5)
    buffer.push(numbers(9))
    assert trained(again, ctx, (108, 20_000)) == [0, 0]
    buffer.push(numbers(1))
    # Due are 0.5 (steps - 20,100) from here on.
    assert trained(again, ctx, (20_100, 20_106, 20_110, 20_112)) == [0, 3, 0, 3]


def test_what_another_ratio_has_not_done_is_not_made_up_for(parts):
    middleware, _, buffer = parts(updates_per_step=0.5)
    buffer.push(numbers(10))
    ctx = OnlineRLContext()
    trained(middleware, ctx, (10, 1000))
    for ratio in (3.0, 0.25):
        again, buffer, at = resumed(parts, middleware, ctx, updates_per_step=ratio)
        buffer.push(numbers(10))
        assert trained(again, at, (1012, 1024)) == [0, 12 * ratio]


def test_episodes_that_end_late_are_not_made_up_for(counting_config):
    learn = {"warmup": 1, "batch_size": 1, "update_per_collect": 3, "updates_per_step": 0.5}
    cfg = counting_config(**{f"policy.learn.{key}": value for key, value in learn.items()}, **{"run.max_env_step": 100})
    buffer = ReplayBuffer(500, FIELDS, sequences=Sequences(200, whole=True))
    middleware, ctx = OffPolicyLearner(cfg, ReadingLearner(FIELDS), buffer), OnlineRLContext()
    order = {"sequence": np.zeros(100, int), "begun": np.arange(100) == 0}
    buffer.push({**numbers(100), **order, "ended": np.zeros(100, bool)})
    assert trained(middleware, ctx, (100,)) == [0]
    buffer.push({**numbers(100), **order, "begun": np.zeros(100, bool), "ended": np.arange(100) == 99})
    assert trained(middleware, ctx, (200, 206)) == [0, 3]


class Counts(ReadingLearner):
    """Its loss counts its calls; every other call has another metric."""

    def forward(self, batch, progress=0.0):
        output, number = super().forward(batch, progress), len(self.progress)
        more = {"rare": 10.0} if number % 2 == 0 else {}
        return dataclasses.replace(output, metrics={"loss": float(number), **more})


def test_metrics_are_means_over_the_calls_of_an_iteration(counting_config):
    learn = {"warmup": 4, "batch_size": 4, "update_per_collect": 3, "updates_per_step": 1.0}
    cfg = counting_config(**{f"policy.learn.{key}": value for key, value in learn.items()}, **{"run.max_env_step": 100})
    buffer = ReplayBuffer(10, FIELDS)
    buffer.push(numbers(4))
    middleware, ctx = OffPolicyLearner(cfg, Counts(FIELDS), buffer), OnlineRLContext(env_step=4)
    middleware(ctx)
    ctx.env_step, ctx.train_output = 13, {"before": 1.0}
    middleware(ctx)
    assert ctx.train_output == {"before": 1.0, "loss": 2.0, "rare": 10.0, "grad_steps": 9}


def test_a_ratio_in_replayed_rows_counts_their_steps(parts):
    # Sequences of 8 rows, 4 a step: one step replays 32 rows, due is 1 in 8 environment steps.
    middleware, _, buffer = parts(update_per_collect=1)
    cfg = types.SimpleNamespace(policy=Config({"learn": {"train_ratio": 4.0, "batch_size": 4, "length": 8}}))
    assert updates_per_step(cfg) == (0.125, "policy.learn.train_ratio=4.0")
    middleware._ratio, middleware._ratio_key = updates_per_step(cfg)
    buffer.push(numbers(10))
    assert trained(middleware, OnlineRLContext(), (10, 17, 18, 58)) == [0, 0, 1, 5]
    assert "policy.learn.train_ratio=4.0 counts" in middleware.clashes([middleware, parts()[0]])[0]
