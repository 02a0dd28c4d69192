"""Events: order, once, off, wait_for, errors in threads."""

import threading

from fakes import refuses

from minding.engine import ChainError
from minding.engine.chain import events
from minding.engine.chain.events import EventBus


def test_handlers_are_called_in_the_order_of_registration():
    bus, calls = EventBus(), []
    bus.on("saved", lambda *args, **kwargs: calls.append(("a", args, kwargs)))
    bus.on("saved", lambda *args, **kwargs: calls.append(("b", args, kwargs)))
    bus.emit("saved", 1, step=2)
    bus.emit("other", 3)
    bus.emit("saved", event=5)
    assert calls[:2] == [("a", (1,), {"step": 2}), ("b", (1,), {"step": 2})]
    assert calls[2:] == [("a", (), {"event": 5}), ("b", (), {"event": 5})]


def test_off_removes_exactly_one_registration_also_in_a_handler():
    bus, seen = EventBus(), []
    bus.on("tick", seen.append)
    bus.on("tick", seen.append)
    bus.off("tick", seen.append)
    bus.emit("tick", 1)
    assert seen == [1]
    refuses(ChainError, ("did you mean 'tick'", lambda: bus.off("tic", print)), ("callable", lambda: bus.on("tick", 3)))
    bus, seen = EventBus(), []

    def first(value):
        seen.append(("first", value))
        bus.off("tick", first)
        bus.on("tick", lambda value: seen.append(("second", value)))

    bus.on("tick", first)
    bus.emit("tick", 1)
    bus.emit("tick", 2)
    assert seen == [("first", 1), ("second", 2)]


def test_wait_for_returns_the_arguments_of_the_next_emit():
    bus, received, ready = EventBus(), [], threading.Event()

    def wait():
        ready.set()
        received.append(bus.wait_for("done", timeout=30))

    waiter = threading.Thread(target=wait)
    waiter.start()
    ready.wait()
    while waiter.is_alive():
        bus.emit("done", 1, step=2)
    assert received == [((1,), {"step": 2})]
    refuses(ChainError, ("done", lambda: bus.off("done")))


def test_a_long_wait_logs_what_it_waits_for(monkeypatch, caplog):
    bus = EventBus()
    monkeypatch.setattr(events, "_FIRST_REPORT", 0.02)
    refuses(TimeoutError, ("'done' within 0.3 s", lambda: bus.wait_for("done", timeout=0.3)))
    refuses(ChainError, ("done", lambda: bus.off("done")))
    assert "wait_for('done')" in caplog.text
    assert len(caplog.records) <= 4
