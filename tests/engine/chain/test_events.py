"""Events: order, once, off, wait_for, errors in threads."""

from __future__ import annotations

import threading

import pytest

from minding.engine import ChainError
from minding.engine.chain import events
from minding.engine.chain.events import EventBus


def run_in_threads(count, function):
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_handlers_are_called_in_the_order_of_registration_with_all_arguments():
    bus, calls = EventBus(), []
    bus.on("saved", lambda *args, **kwargs: calls.append(("a", args, kwargs)))
    bus.on("saved", lambda *args, **kwargs: calls.append(("b", args, kwargs)))
    bus.emit("saved", 1, step=2)
    bus.emit("other", 3)
    assert calls == [("a", (1,), {"step": 2}), ("b", (1,), {"step": 2})]


def test_an_argument_may_be_called_event():
    bus, seen = EventBus(), []
    bus.on("tick", lambda event: seen.append(event))
    bus.emit("tick", event=5)
    assert seen == [5]


def test_once_is_called_once_when_threads_emit_together():
    bus, barrier = EventBus(), threading.Barrier(8)
    counts = []
    for _ in range(50):
        seen = []
        bus.once("tick", seen.append)

        def emit():
            barrier.wait()
            bus.emit("tick", 1)

        run_in_threads(8, emit)
        counts.append(len(seen))
    assert counts == [1] * 50


def test_off_removes_exactly_one_registration():
    bus, seen = EventBus(), []
    bus.on("tick", seen.append)
    bus.on("tick", seen.append)
    bus.off("tick", seen.append)
    bus.emit("tick", 1)
    assert seen == [1]


def test_off_without_a_registration_is_an_error_with_the_nearest_event():
    bus = EventBus()
    bus.on("saved", print)
    with pytest.raises(ChainError, match="print is not registered for event 'save'; did you mean 'saved'"):
        bus.off("save", print)


def test_a_handler_may_add_and_remove_handlers():
    bus, seen = EventBus(), []

    def first(value):
        seen.append(("first", value))
        bus.off("tick", first)
        bus.on("tick", lambda value: seen.append(("second", value)))

    bus.on("tick", first)
    bus.emit("tick", 1)
    bus.emit("tick", 2)
    assert seen == [("first", 1), ("second", 2)]


def test_an_error_in_a_handler_is_raised_after_the_others_were_called():
    bus, seen = EventBus(), []

    def fail(value):
        raise ValueError("first")

    bus.on("tick", fail)
    bus.on("tick", seen.append)
    with pytest.raises(ValueError, match="first") as caught:
        bus.emit("tick", 1)
    assert seen == [1]
    assert caught.value.__notes__ == ["in handler 'fail' of event 'tick'"]


def test_an_error_in_another_thread_waits_for_the_owner():
    bus = EventBus()
    bus.on("tick", lambda: 1 / 0)
    bus.own(True)
    run_in_threads(1, lambda: bus.emit("tick"))
    with pytest.raises(ZeroDivisionError):
        bus.raise_pending()
    bus.raise_pending()


def test_a_handler_must_be_callable():
    with pytest.raises(ChainError, match="must be callable, got 3"):
        EventBus().on("tick", 3)


def test_wait_for_returns_the_arguments_of_the_next_emit():
    bus, received, ready = EventBus(), [], threading.Event()

    def wait():
        ready.set()
        received.append(bus.wait_for("done", timeout=30))

    waiter = threading.Thread(target=wait)
    waiter.start()
    ready.wait()
    while bus.handler_count("done") == 0:
        pass
    bus.emit("done", 1, step=2)
    waiter.join()
    assert received == [((1,), {"step": 2})]
    assert bus.handler_count("done") == 0


def test_wait_for_leaves_nothing_behind_after_a_timeout():
    bus = EventBus()
    with pytest.raises(TimeoutError, match=r"no event 'done' within 0\.01 s"):
        bus.wait_for("done", timeout=0.01)
    assert bus.handler_count("done") == 0


def test_a_long_wait_logs_what_it_waits_for(monkeypatch, caplog):
    monkeypatch.setattr(events, "_FIRST_REPORT", 0.02)
    with pytest.raises(TimeoutError):
        EventBus().wait_for("done", timeout=0.3)
    assert "wait_for('done') has waited for 0 s; no thread has emitted this event" in caplog.text
    assert len(caplog.records) <= 4
