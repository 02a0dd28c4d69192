"""Running middleware: order, second halves, composites, errors."""

import threading

import pytest
from chain_kit import Marker, fail, marker
from fakes import refuses

from minding.engine import ChainError, MiddlewareError, OnlineRLContext, Task, declare


def test_a_wrapped_middleware_runs_where_it_is_called(started):
    log = []
    child = started.wrap(marker(log, 2))

    def mother(ctx):
        log.append(1)
        back = child(ctx)
        log.append(3)
        yield
        log.append(-3)
        back()
        log.append(-1)

    started.use(mother).run(max_step=2)
    assert log == [1, 2, 3, -3, -2, -1] * 2
    # Of a plain function it is empty, and can be called twice.
    back = started.wrap(lambda ctx: log.append(5))(started.ctx)
    back()
    back()
    assert log[12:] == [5]


def test_a_wrapped_middlewares_second_half_runs_with_the_chain(started):
    log = []
    child = started.wrap(marker(log, 2))

    def mother(ctx):
        child(ctx)

    started.use(marker(log, 1)).use(mother).use(marker(log, 3)).run(max_step=1)
    assert log == [1, 2, 3, -3, -2, -1]


def test_forward_and_backward_run_single_halves(started):
    log = []
    first = started.forward(marker(log, 1))
    started.forward(marker(log, 2), OnlineRLContext())
    third = started.forward(marker(log, 3))
    assert started.forward(lambda ctx: log.append(4)) is None
    started.backward(first, third)
    assert log == [1, 2, 3, 4, -3, -1]
    started.backward()
    started.backward()
    assert log == [1, 2, 3, 4, -3, -1, -2]


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_composites_run_second_halves_in_reverse_order(started, kind):
    log = []
    compose = getattr(started, kind)
    middle = compose(Marker(log, 2), compose(), compose(marker(log, 3)))
    started.use(marker(log, 1)).use(middle).use(marker(log, 4)).run(max_step=1)
    assert log[0] == 1
    assert sorted(log[1:3]) == [2, 3]
    assert log[3:] == [4, -4, -3, -2, -1]


def test_the_member_with_a_role_runs_in_the_calling_thread(started):
    threads = {}

    @declare(role="learn")
    def learner():
        def learn(ctx):
            threads["learn"] = threading.current_thread()
            yield
            threads["second half"] = threading.current_thread()

        return learn

    def wait(ctx):
        threads["wait"] = threading.current_thread()

    started.use(started.parallel(wait, started.serial(learner()))).run(max_step=1)
    assert threads["learn"] is threads["second half"] is threading.main_thread()
    assert threads["wait"] is not threading.main_thread()


def test_the_first_error_of_parallel_is_raised_after_all_ended(started):
    log, failed = [], threading.Event()

    def fail_and_tell(ctx):
        failed.set()
        raise ValueError("broken")

    def wait(ctx):
        failed.wait(30)
        log.append("waited")

    started.use(Marker(log, 1)).use(started.parallel(Marker(log, 2), fail_and_tell, wait, fail))
    with pytest.raises(ValueError, match="broken") as caught:
        started.run(max_step=1)
    assert log[0] == 1
    assert sorted(log[1:3], key=str) == [2, "waited"]
    assert log[3:] == ["closed 2", "closed 1"]
    assert caught.value.__notes__ == [
        "in middleware 'fail_and_tell' (member 1 of parallel)",
        "another member of parallel failed too: ValueError('broken')",
        "in middleware 'parallel' (position 1, step 0)",
    ]


def test_a_member_that_waits_ends_when_another_one_fails(started):
    closed = []

    def wait(ctx):
        try:
            started.wait_for("never")
        finally:
            closed.append("waiter")

    started.use(started.parallel(wait, started.parallel(wait, fail)))
    with pytest.raises(ValueError, match="broken") as caught:
        started.run(max_step=1)
    assert closed == ["waiter"] * 2
    # That the others were given up is no failure of theirs.
    assert not any("another member" in note for note in caught.value.__notes__)
    refuses(ChainError, ("never", lambda: started.off("never")))


@pytest.mark.parametrize("emitter_first", [False, True])
def test_a_member_receives_events_however_early(started, emitter_first):
    emitted, received = threading.Event(), []

    def wait(ctx):
        emitted.wait(30)
        received.append(started.wait_for("ready", 30))
        received.append(started.wait_for("ready", timeout=30))

    def emit(ctx):
        started.emit("ready", ctx.total_step, part=1)
        started.emit("ready", ctx.total_step, part=2)
        emitted.set()

    members = [emit, wait] if emitter_first else [wait, emit]
    started.use(lambda ctx: emitted.clear()).use(started.parallel(*members)).run(max_step=2)
    assert received == [((step,), {"part": part}) for step in (0, 1) for part in (1, 2)]
    # What came before belongs to another call.
    with pytest.raises(TimeoutError):
        started.wait_for("ready", timeout=0.01)


def test_nested_members_receive_outer_events_not_their_own(started):
    begun, received = threading.Event(), []

    def emit(ctx):
        started.emit("go", "around")
        begun.set()

    def late(ctx):
        begun.wait(30)
        started.emit("go", "own")
        received.append(started.wait_for("go", timeout=30)[0])

    def hold(ctx):
        begun.wait(30)

    started.use(started.parallel(emit, started.serial(hold, started.parallel(late)))).run(max_step=1)
    assert received == [("around",)]


def test_a_signal_ends_a_wait_and_the_run(started):
    def wait(ctx):
        started.wait_for("never")

    def interrupt(ctx):
        started.interrupt("SIGTERM")

    started.use(started.parallel(wait, interrupt)).run(max_step=3)
    assert (started.stop_reason, started.ctx.total_step) == ("SIGTERM", 0)


@pytest.mark.parametrize("profile", [False, True])
def test_a_second_yield_is_an_error_that_names_the_middleware(profile):
    def twice(ctx):
        yield
        yield

    log = []
    with Task().start(profile=profile) as task:
        task.use(Marker(log, 1)).use(twice)
        refuses(MiddlewareError, ("yields twice", lambda: task.run(max_step=1)))
    assert log == [1, "closed 1"]


def test_a_generator_that_never_yields_is_fine(started):
    log = []

    def maybe(ctx):
        log.append(1)
        if log == [0]:
            yield

    started.use(maybe).run(max_step=2)
    assert log == [1, 1]


def test_an_exception_closes_open_generators_in_reverse(started):
    log = []
    started.use(Marker(log, 1)).use(started.serial(Marker(log, 2), started.wrap(Marker(log, 3))))
    started.use(lambda ctx: fail(ctx) if ctx.total_step == 1 else None)
    with pytest.raises(ValueError, match="broken") as caught:
        started.run(max_step=5)
    assert log == [1, 2, 3, -3, -2, -1, 1, 2, 3, "closed 3", "closed 2", "closed 1"]
    assert caught.value.__notes__ == ["in middleware '<lambda>' (position 2, step 1)"]
    assert (started.stop_reason, started.running, started.ctx.total_step) == ("exception", False, 1)


def test_an_exception_in_a_second_half_closes_the_others(started):
    log = []

    def fail_late(ctx):
        yield
        fail(ctx)

    started.use(Marker(log, 1)).use(started.serial(Marker(log, 2), fail_late))
    with pytest.raises(ValueError) as caught:
        started.run(max_step=1)
    assert log == [1, 2, "closed 2", "closed 1"]
    assert caught.value.__notes__ == [
        "in the second half of middleware 'fail_late' (member 1 of serial)",
        "in the second half of middleware 'serial' (position 1, step 0)",
    ]


def test_an_error_while_closing_does_not_hide_the_first_one(started):
    log = []

    def fail_at_close(ctx):
        try:
            yield
        finally:
            raise RuntimeError("cannot close")

    started.use(Marker(log, 1)).use(started.serial(Marker(log, 2), fail_at_close)).use(fail)
    with pytest.raises(ValueError, match="broken") as caught:
        started.run(max_step=1)
    assert log == [1, 2, "closed 2", "closed 1"]
    assert "closing the chain failed too: RuntimeError('cannot close')" in caught.value.__notes__[1]
