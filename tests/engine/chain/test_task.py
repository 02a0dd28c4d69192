"""Task: start and end of runs, misuse, events, state, views."""

import pytest
from chain_kit import fail, marker
from fakes import refuses

from minding.engine import ChainError, CheckpointError, OnlineRLContext, Role, Task, task
from minding.middleware import termination_checker

# Misuse


def test_a_task_runs_within_its_block_and_can_be_started_again():
    outer = Task()
    outside = [
        ("has not been started", lambda: outer.use(fail)),
        ("has not been started", outer.run),
        ("has not been started", lambda: outer.on("a", fail)),
    ]
    refuses(ChainError, *outside)
    with outer.start():
        outer.use(lambda ctx: None)
        refuses(ChainError, ("another Task()", outer.start))
        outer.run(max_step=2)
    assert outer.ctx.total_step == 2
    refuses(ChainError, *outside)
    with pytest.raises(ValueError), outer.start():
        outer.use(fail).run(max_step=1)
    with outer.start() as again:
        again.use(lambda ctx: None).run(max_step=1)
    assert again.stop_reason == "max_step"


def test_roles_have_the_names_of_both(started):
    assert (started.role, started.roles, started.has_role(Role.LEARN)) == (Role, frozenset(), True)
    started.add_role(started.role.LEARNER)
    started.add_role("collector")
    assert started.roles == {Role.LEARN, Role.COLLECT}
    assert started.has_role(started.role.COLLECTOR)
    assert not started.has_role("evaluate")
    assert [role.value for role in Role] == ["collect", "learn", "evaluate"]


def test_a_checker_takes_the_arguments_of_di_engine():
    ctx = OnlineRLContext(train_iter=50)
    with Task().start(ctx=ctx) as task:
        checker = termination_checker(100, 50, task=task)
        checker(ctx)
    assert checker.reason == "max_train_iter"


# Steps and ends


@pytest.mark.parametrize("start", [0, 400])
def test_max_step_bounds_the_total_step_of_the_task(start):
    seen = []
    with Task().start(ctx=OnlineRLContext(total_step=start)) as task:
        task.use(lambda ctx: seen.append((ctx.total_step - start, task.running)))
        for limit in (2, 5, 5):
            task.run(max_step=start + limit)
            assert (task.ctx.total_step, task.stop_reason, task.running) == (start + limit, "max_step", False)
    assert seen == [(step, True) for step in range(5)]


def test_finish_lets_the_rest_of_the_iteration_run_once(started):
    log = []

    def finish(ctx):
        if ctx.total_step == 1:
            started.finish = True

    started.use(marker(log, 1)).use(finish).use(marker(log, 2))
    started.run(max_step=10)
    assert log == [1, 2, -2, -1] * 2
    assert (started.ctx.total_step, started.stop_reason, started.finish) == (2, "finish", True)


def test_finish_can_be_taken_back_and_binds_no_later_run(started):
    def finish_and_regret(ctx):
        started.finish = True
        started.finish = ctx.total_step == 3

    started.use(finish_and_regret).run(max_step=10)
    assert started.ctx.total_step == 4
    started.run(max_step=6)
    assert (started.ctx.total_step, started.stop_reason) == (6, "max_step")


class Hook:
    """Logs its `finish`, and fails in it if told so."""

    def __init__(self, log, name, error=None):
        self.log, self.name, self.error = log, name, error

    def __call__(self, ctx): ...

    def finish(self, ctx):
        self.log.append((self.name, ctx.total_step))
        if self.error:
            raise self.error


@pytest.mark.parametrize(
    ("end", "reason", "step"),
    [(lambda ctx: None, "max_step", 2), (lambda ctx: task.stop(), "finish", 1), (fail, "exception", 0)],
)
def test_hooks_and_the_finish_event_run_once_at_any_end(end, reason, step):
    log = []
    with task.start():
        task.on("finish", lambda: log.append("event"))
        task.use(Hook(log, "a")).use(task.serial(Hook(log, "b"), task.parallel(Hook(log, "c"))))
        task.use(end).use(Hook(log, "d"))
        try:
            task.run(max_step=2)
        except ValueError:
            log.append("raised")
    raised = ["raised"] if end is fail else []
    assert log == [("a", step), ("b", step), ("c", step), ("d", step), "event", *raised]
    assert task.stop_reason == reason


# Events, tasks, roles


def test_a_task_has_once_off_and_wait_for(started):
    seen = []
    started.once("tick", seen.append)
    started.on("tick", seen.append)
    started.emit("tick", 1)
    started.off("tick", seen.append)
    started.emit("tick", 2)
    assert seen == [1, 1]
    refuses(TimeoutError, ("'tick'", lambda: started.wait_for("tick", timeout=0.01)))
    started.on("tick", pytest.fail)
    started.on("tick", pytest.fail)
    started.off("tick")
    started.emit("tick")


def test_two_tasks_share_nothing():
    log = []
    with Task().start() as one, Task().start() as two:
        one.on("tick", log.append)
        one.add_role("learn")
        one.use(lambda ctx: log.append("one")).run(max_step=1)
        two.emit("tick", 1)
        two.use(lambda ctx: log.append("two")).run(max_step=2)
        assert (one.ctx.total_step, two.ctx.total_step, two.has_role("collect")) == (1, 2, True)
    assert log == ["one", "two", "two"]


def test_a_start_after_a_run_begins_a_new_one():
    log = []
    for _ in range(2):
        with task.start(ctx=OnlineRLContext()):
            task.on("finish", lambda: log.append("event"))
            task.use(lambda ctx: log.append(ctx.total_step)).run(max_step=2)
    assert log == [0, 1, "event"] * 2


# State, views, time


class Counter:
    """A user's own stateful middleware."""

    def __init__(self):
        self.count = 0

    def __call__(self, ctx):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@pytest.fixture
def build():
    """Builds a chain with two counters, one of them nested; returns the task and the counters."""

    def build_task():
        counters = [Counter(), Counter()]
        built = Task().start(ctx=OnlineRLContext())
        built.use(lambda ctx: None).use(counters[0]).use(built.serial(lambda ctx: None, counters[1]))
        return built, counters

    return build_task


def test_the_state_of_a_chain_loads_into_the_same_chain_only(build):
    first, _ = build()
    first.run(max_step=3)
    state = first.state_dict()
    assert state["ctx"]["total_step"] == 3
    assert state["chain"] == ["0:<lambda>", "1:Counter", "2.0:<lambda>", "2.1:Counter"]
    assert state["middleware"] == {"1:Counter": {"count": 3}, "2.1:Counter": {"count": 3}}
    second, counters = build()
    second.load_state_dict(state)
    second.run(max_step=5)
    assert [counter.count for counter in counters] == [5, 5]
    first, _ = build()
    first.run(max_step=3)
    state = first.state_dict()
    with Task().start() as other:
        counter = Counter()
        other.use(counter)
        refuses(CheckpointError, ("got 0:Counter", lambda: other.load_state_dict(state)))
        assert (counter.count, other.ctx.total_step) == (0, 0)
    del state["middleware"]["1:Counter"]
    refuses(CheckpointError, ("1:Counter", lambda: build()[0].load_state_dict(state)))


# Boundaries and resuming


def test_a_call_at_the_boundary_comes_once_after_both_halves(started):
    log = []

    def ask(ctx):
        if ctx.total_step == 1:
            started.at_boundary(lambda: log.append(("boundary", started.ctx.total_step, started.within_iteration)))

    started.use(ask).use(marker(log, 1)).run(max_step=3)
    assert log == [1, -1, 1, -1, ("boundary", 2, False), 1, -1]


class Saver(Hook):
    """Resumes by setting the context, unless told to fail."""

    def resume(self, request):
        self.log.append(("resume", request))
        if self.error:
            raise self.error
        task.ctx.total_step = 7


class Resumed(Hook):
    def resumed(self, ctx):
        self.log.append((self.name, "resumed", ctx.total_step))


def test_a_run_resumes_once_then_calls_hooks_and_event():
    log = []
    with task.start(resume="latest"):
        task.on("resumed", lambda: log.append("event"))
        task.use(Resumed(log, "a")).use(Saver(log, "saver"))
        task.run(max_step=8)
        task.run(max_step=9)
    start = [("resume", "latest"), ("a", "resumed", 7), "event"]
    # The saver's hook comes before the others.
    assert log == [*start, ("saver", 8), ("a", 8), ("saver", 9), ("a", 9)]
    log = []
    with task.start(resume="latest"):
        task.use(Saver(log, "saver", CheckpointError("none"))).use(lambda ctx: log.append("step"))
        refuses(CheckpointError, *[("none", lambda: task.run(max_step=8))] * 2)
    assert log == [("resume", "latest")] * 2


def test_the_guarantee_is_the_weakest_in_the_chain(started):
    assert started.use(lambda ctx: None).resume_guarantee == "exact"
    for guarantee in ("without-buffer", "exact", "episode-boundary"):
        hook = Hook([], guarantee)
        hook.resume_guarantee = guarantee
        started.use(hook)
    assert started.resume_guarantee == "without-buffer"


def test_the_profile_counts_calls_and_time_of_both_halves():
    clock = []
    with Task().start(profile=True) as measured:
        measured.use(marker(clock, 1)).use(lambda ctx: None)
        measured.run(max_step=2)
        measured.run(max_step=5)
        lines = measured.profile().splitlines()
    assert clock == [1, -1] * 5
    assert lines[0].split() == ["middleware", "calls", "total", "s", "mean", "us", "share", "%"]
    assert [line.split()[:2] for line in lines[1:3]] == [["mark", "5"], ["<lambda>", "5"]]
    assert abs(sum(float(line.split()[-1]) for line in lines[1:3]) - 100) < 0.2
