"""Signals: an orderly end on the first, at once on the second, handlers restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from minding.engine import OnlineRLContext, Task
from minding.engine.signals import SIGNALS, SignalGuard


@pytest.fixture(autouse=True)
def _handlers_are_restored():
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_the_first_signal_only_asks(number, name):
    asked = []
    with SignalGuard(asked.append):
        signal.raise_signal(number)
    assert asked == [name]


@pytest.mark.parametrize("first", SIGNALS)
def test_a_second_interrupt_raises_at_once_and_brings_the_default_back(first):
    with SignalGuard(lambda name: None):
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_terminate_exits_with_143():
    with SignalGuard(lambda name: None):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143


def test_the_guard_of_an_inner_run_tells_the_outer_one():
    outer, inner = [], []
    with SignalGuard(outer.append):
        with SignalGuard(inner.append):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (outer, inner) == (["SIGINT"], ["SIGINT"])


def test_outside_the_main_thread_the_guard_does_nothing():
    seen = []

    def enter():
        with SignalGuard(seen.append):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


class Recorder:
    """Raises a signal in the second iteration and records what happens."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.log = []

    def __call__(self, ctx):
        self.log.append(f"begin {ctx.total_step}")
        try:
            for number in self.numbers if ctx.total_step == 1 else ():
                signal.raise_signal(number)
            yield
            self.log.append(f"end {ctx.total_step}")
        finally:
            self.log.append("closed")

    def finish(self, ctx):
        self.log.append(f"finish at {ctx.total_step}")


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_lets_the_iteration_end_and_the_hooks_run_once(number, name):
    recorder, after = Recorder([number]), []
    with Task().start(ctx=OnlineRLContext()) as task:
        task.on("finish", lambda: recorder.log.append("finish event"))
        task.use(recorder).use(lambda ctx: after.append(ctx.total_step))
        task.run(max_step=100)
        assert task.stop_reason == name
        assert after == [0, 1]
        assert recorder.log == [
            *("begin 0", "end 0", "closed", "begin 1", "end 1", "closed"),
            *("finish at 2", "finish event"),
        ]
        task.run(max_step=100)
    assert after == [0, 1]


def test_setting_finish_to_false_does_not_take_a_signal_back():
    def handle(ctx):
        signal.raise_signal(signal.SIGTERM)
        task.finish = False
        assert task.finish

    with Task().start() as task:
        task.use(handle).run(max_step=5)
    assert (task.ctx.total_step, task.stop_reason) == (1, "SIGTERM")


def test_a_second_signal_ends_the_iteration_and_still_calls_the_hooks_once():
    recorder = Recorder([signal.SIGTERM, signal.SIGTERM])
    with Task().start() as task:
        task.use(recorder)
        with pytest.raises(SystemExit) as caught:
            task.run(max_step=100)
    assert (caught.value.code, task.stop_reason) == (143, "SIGTERM")
    assert recorder.log == ["begin 0", "end 0", "closed", "begin 1", "closed", "finish at 1"]


def test_a_signal_reaches_the_task_whose_middleware_runs_another_task():
    outer_steps, inner_reasons = [], []

    def run_inner(ctx):
        outer_steps.append(ctx.total_step)
        with Task().start() as inner:
            inner.use(lambda ctx: signal.raise_signal(signal.SIGINT))
            inner.run(max_step=5)
        inner_reasons.append(inner.stop_reason)

    with Task().start() as outer:
        outer.use(run_inner).run(max_step=3)
    assert (outer_steps, inner_reasons, outer.stop_reason) == ([0], ["SIGINT"], "SIGINT")


ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
SCRIPT = """
import sys
from minding.engine import task
class Hook:
    def __call__(self, ctx):
        if ctx.total_step == 0:
            print("running", flush=True)
    def finish(self, ctx):
        print("saved", flush=True)
with task.start():
    task.use(Hook()).run()
print(task.stop_reason)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_gets_a_signal_saves_and_leaves(number):
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV) as process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        rest = process.stdout.read()
    assert (rest, process.returncode) == (f"saved\n{number.name}\n", 0)
