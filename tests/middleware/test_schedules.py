"""Schedules of runs that are lengthened."""

import logging

import pytest
from fakes import Weights, tiny_config

from minding.engine import OnlineRLContext, Task
from minding.middleware import CkptSaver
from minding.middleware.learning import Schedule, rate_jump


def config(**settings):
    overrides = {
        "policy.learn.anneal_lr": True,
        "policy.learn.learning_rate": 1e-3,
        "run.max_env_step": 1000,
        **settings,
    }
    return tiny_config("ppo", **overrides)


def test_a_lengthened_run_whose_learning_rate_jumps_is_told():
    jump = rate_jump(config(), config(**{"run.max_env_step": 2000}), clock=996)
    assert "the learning rate goes from 4e-06 to 0.000502 at env_step 996" in jump
    assert "policy.learn.anneal_steps=1000 keeps the earlier schedule" in jump


@pytest.mark.parametrize(
    "settings",
    [{}, {"policy.learn.learning_rate": 1e-4}, {"run.max_env_step": 2000, "policy.learn.anneal_steps": 1000}],
)
def test_the_same_schedule_is_not_mentioned(settings):
    assert rate_jump(config(), config(**settings), clock=996) is None


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "run.max_env_step"),
        ({"policy.learn.anneal_steps": 500}, "policy.learn.anneal_steps"),
        ({"policy.learn.anneal_lr": False}, None),
        ({"policy.learn.anneal_kind": "exp"}, None),
    ],
)
def test_learning_after_the_rate_has_reached_0_is_reported_once(settings, key, caplog):
    schedule = Schedule(config(**settings))
    with caplog.at_level(logging.WARNING, "minding"):
        schedule.progress(499)
        assert not caplog.records
        assert [schedule.progress(clock) >= 1 for clock in (1000, 1100)] == [True, True]
    assert [key for message in caplog.messages if f"({key})" in message] == ([key] if key else [])


def test_a_resume_warns_of_the_jump(tmp_path, caplog):
    def run(max_step, resume=None, **settings):
        task = Task()
        with task.start(ctx=OnlineRLContext(), resume=resume):
            task.use(lambda ctx: setattr(ctx, "env_step", ctx.env_step + 100))
            task.use(CkptSaver(Weights(config(**settings)), "run", 1, out_dir=tmp_path, task=task))
            task.run(max_step=max_step)

    run(3)
    with caplog.at_level(logging.WARNING, "minding"):
        run(4, resume="latest", **{"run.max_env_step": 2000})
    assert [text[:60] for text in caplog.messages] == ["the learning rate goes from 0.0007 to 0.00085 at env_step 30"]
