"""The end of a run by goal or budget."""

import math
import types

import pytest

from minding.engine import ChainError, OfflineRLContext, OnlineRLContext, Task
from minding.engine.chain.check import check_chain
from minding.middleware import eps_greedy_masker
from minding.middleware.termination_checker import termination_checker


@pytest.fixture
def task():
    return types.SimpleNamespace(finish=False)


@pytest.mark.parametrize(
    ("limits", "below", "at", "reason"),
    [
        ({"max_env_step": 100}, {"env_step": 99}, {"env_step": 100}, "max_env_step"),
        ({"max_train_iter": 10}, {"train_iter": 9}, {"train_iter": 10}, "max_train_iter"),
        ({"stop_value": 475.0}, {"eval_value": 474.9}, {"eval_value": 475.0}, "stop_value"),
        ({"stop_value": -200.0, "max_env_step": 100}, {"env_step": 99}, {"env_step": 100}, "max_env_step"),
    ],
)
def test_the_run_ends_when_a_limit_is_reached(task, limits, below, at, reason):
    checker = termination_checker(**limits, task=task)
    checker(OnlineRLContext(**below))
    assert (task.finish, checker.reason) == (False, None)
    checker(OnlineRLContext(**at))
    assert (task.finish, checker.reason) == (True, reason)


def test_recorded_data_end_a_run_by_passes_and_gradient_steps(task):
    checker = termination_checker(max_train_iter=10, max_train_epoch=3, task=task)
    check_chain([checker], OfflineRLContext)
    checker(OfflineRLContext(train_iter=9, train_epoch=2))
    assert checker.reason is None
    checker(OfflineRLContext(train_iter=9, train_epoch=3))
    assert checker.reason == "max_train_epoch"
    with pytest.raises(ChainError, match=r"reads ctx\.env_step, which OfflineRLContext does not have"):
        check_chain([termination_checker(max_env_step=10, task=task)], OfflineRLContext)


@pytest.mark.parametrize(
    ("more", "max_step", "warned"),
    [([], None, True), ([], 3, False), ([lambda ctx: None], None, False), ("its own", None, False)],
)
def test_a_chain_that_nothing_ends_says_so_before_it_runs(more, max_step, warned, caplog):
    with Task().start() as task:
        task.use_wrapper(lambda fn: lambda ctx: (fn(ctx), task.stop())[0])
        task.use(eps_greedy_masker())
        for middleware in [termination_checker(100, task=task)] if more == "its own" else more:
            task.use(middleware)
        task.run(max_step=max_step)
    assert ["termination_checker(cfg.run.max_env_step)" in text for text in caplog.messages] == [True] * warned


@pytest.mark.parametrize("value", [None, math.nan])
def test_no_evaluation_and_a_nan_never_reach_the_stop_value(task, value):
    termination_checker(stop_value=-math.inf, task=task)(OnlineRLContext(eval_value=value))
    assert not task.finish


@pytest.mark.parametrize(
    ("limits", "counters", "reason"),
    [
        ({"max_env_step": 100}, {"env_step": 99}, None),
        ({"max_env_step": 100}, {"env_step": 100}, "max_env_step"),
        ({"stop_value": 475.0}, {"last_eval_value": 480.0}, "stop_value"),
        ({"stop_value": 475.0}, {}, None),
    ],
)
def test_a_resumed_run_with_nothing_left_ends_at_once(task, caplog, limits, counters, reason):
    checker = termination_checker(**limits, task=task)
    with caplog.at_level("INFO", "minding"):
        checker.resumed(OnlineRLContext(**counters))
    assert (task.finish, checker.reason) == (reason is not None, reason)
    assert (f"nothing left to train: {reason} has been reached" in caplog.text) == (reason is not None)
