"""What a user of DI-engine types does the right thing, or is refused with a message that names what to use instead."""

import re

import pytest

from minding.engine import ChainError, MiddlewareError, OnlineRLContext, Role, Task
from minding.middleware import EpisodeCollector, epoch_timer, multistep_trainer, termination_checker


def test_roles_have_the_names_of_both():
    task = Task()
    assert (task.role, task.roles) == (Role, frozenset())
    task.add_role(task.role.LEARNER)
    task.add_role("collector")
    assert task.roles == {Role.LEARN, Role.COLLECT}
    assert task.has_role(task.role.COLLECTOR)
    assert task.has_role("learn")
    assert not task.has_role(task.role.EVALUATOR)
    assert [role.value for role in Role] == ["collect", "learn", "evaluate"]
    with pytest.raises(MiddlewareError, match="role 'fetcher' is not one of collect, learn, evaluate"):
        task.add_role("fetcher")


def test_off_without_a_handler_removes_all_of_an_event():
    with Task().start() as task:
        for _ in range(2):
            task.on("tick", pytest.fail)
        task.off("tick")
        task.emit("tick")
        with pytest.raises(ChainError, match="off: nothing is registered for event 'tock'"):
            task.off("tock")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda task: task.start(n_async_workers=4), "start: n_async_workers is the number of DI-engine's threads; "),
        (lambda task: task.start(True, 4), "lanes={'collectors': 4}"),
        (lambda task: task.start(labels={"a"}), "start: there are no labels; use an `if`"),
        (lambda task: task.start(attach_callback=print), "start: processes are not attached to a run; resume="),
        (lambda task: task.start(traec=True), "start: there is no argument 'traec'; did you mean 'trace'?"),
        (lambda task: task.use(print, lock=True), "use: omit `lock`: no two middleware"),
        (lambda task: task.use(print, filter_labels=["a"]), "use: there are no labels; use an `if`"),
        (lambda task: task.wrap(print, lock=True), "wrap: omit `lock`: no two middleware"),
        (lambda task: task.emit("tick", only_remote=True), "emit: omit `only_remote`: events stay in the run"),
        (lambda task: task.emit("tick", only_local=True), "emit: omit `only_local`: events stay in the run"),
        (
            lambda task: task.wait_for("tick", 0.01, ignore_timeout_exception=False),
            "wait_for: omit `ignore_timeout_exception`: wait_for raises TimeoutError",
        ),
    ],
)
def test_arguments_that_there_are_not_are_refused_by_name(call, message):
    with Task().start(ctx=OnlineRLContext()) as task, pytest.raises(ChainError, match=re.escape(message)):
        call(task)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("router", "lanes start their own processes"),
        ("match_labels", "use an `if`"),
        ("labels", "use an `if`"),
        ("void", "lambda ctx: None"),
        ("sync", "nothing to wait for"),
        ("async_executor", "parallel"),
        ("sequence", "serial"),
        ("use_step_wrapper", "use_wrapper"),
        ("emit_remote", "use emit"),
        ("finsh", "did you mean 'finish'"),
    ],
)
def test_names_that_a_task_does_not_have_say_what_to_use(name, message):
    with pytest.raises(AttributeError, match=f"task.{name}.*{re.escape(message)}"):
        getattr(Task(), name)
    assert not hasattr(Task(), name)


def test_middleware_take_the_arguments_of_di_engine_or_say_which_they_take():
    ctx = OnlineRLContext(train_iter=50)
    with Task().start(ctx=ctx) as task:
        checker = termination_checker(100, 50, task=task)
        checker(ctx)
    assert checker.reason == "max_train_iter"
    epoch_timer(print_per=5)
    with pytest.raises(MiddlewareError, match=r"multistep_trainer: .*'policy'; it takes \(cfg, policy\)"):
        multistep_trainer(object(), log_freq=100)
    with pytest.raises(MiddlewareError, match=r"epoch_timer: .*'smooth_window'; it takes \(print_per, \*, clock\)"):
        epoch_timer(print_per=5, smooth_window=10)
    with pytest.raises(MiddlewareError, match=r"too many positional .*; it takes \(cfg, policy, env, \*, n_episode\)"):
        EpisodeCollector(object(), object(), object(), 8)
