"""Signals: an orderly end on the first, at once on the second, handlers restored."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from fresh import run_fresh

from minding.engine import OnlineRLContext, Task
from minding.engine.process.signals import SIGNALS, SignalGuard


@pytest.fixture(autouse=True)
def _handlers_are_restored():
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_next_act_as_usual(number):
    asked = []
    with SignalGuard(asked.append):
        signal.raise_signal(number)
        assert [signal.getsignal(each) for each in SIGNALS] == [signal.SIG_DFL, signal.SIG_DFL]
    assert asked == [number.name]


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


def ended_by(number):
    """A program that ends as after this signal: a shell sees 128 and its number."""
    return pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit, match=r"^(143)?$")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_the_iteration_end_and_the_hooks_run_once(number):
    recorder, after = Recorder([number]), []
    with ended_by(number), Task().start(ctx=OnlineRLContext()) as task:
        task.on("finish", lambda: recorder.log.append("finish event"))
        task.use(recorder).use(lambda ctx: after.append(ctx.total_step))
        task.run(max_step=100)
        assert task.stop_reason == number.name
        assert after == [0, 1]
        assert recorder.log == [
            *("begin 0", "end 0", "closed", "begin 1", "end 1", "closed"),
            *("finish at 2", "finish event"),
        ]
        task.run(max_step=100)
    assert after == [0, 1]


def test_a_signal_reaches_every_running_task():
    outer_steps, inner_reasons = [], []

    def run_inner(ctx):
        outer_steps.append(ctx.total_step)
        with Task().start() as inner:
            inner.use(lambda ctx: signal.raise_signal(signal.SIGINT))
            inner.run(max_step=5)
        inner_reasons.append(inner.stop_reason)

    # The outermost task ends the program.
    with ended_by(signal.SIGINT), Task().start() as outer:
        outer.use(run_inner).run(max_step=3)
    assert (outer_steps, inner_reasons, outer.stop_reason) == ([0], ["SIGINT"], "SIGINT")

    def handle(ctx):
        signal.raise_signal(signal.SIGTERM)
        task.finish = False
        assert task.finish

    with ended_by(signal.SIGTERM), Task().start() as task:
        task.use(handle).run(max_step=5)
    assert (task.ctx.total_step, task.stop_reason) == (1, "SIGTERM")


ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
SCRIPT = """
import signal, sys, threading
from minding.engine import task
def wait():
    print("waiting", flush=True)
    threading.Event().wait()
class Hook:
    def __call__(self, ctx):
        if ctx.total_step == 0:
            print("running", flush=True)
            if sys.argv[1] == "iteration":
                signal.raise_signal(signal.SIGINT)
                wait()
    def finish(self, ctx):
        if sys.argv[1] == "save":
            wait()
        print("saved", flush=True)
    def close(self):
        print("closed", flush=True)
with task.start():
    task.use(Hook()).run()
print("went on")
"""


@contextlib.contextmanager
def script(waits_in):
    """Runs SCRIPT, which after a first signal waits for ever in its iteration or its save, or nowhere."""
    command = [sys.executable, "-c", SCRIPT, waits_in]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV) as process:
        assert process.stdout.readline() == "running\n"
        yield process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_process_that_gets_a_signal_saves_closes_and_leaves(number, code):
    with script("nowhere") as process:
        process.send_signal(number)
        rest = process.stdout.read()
    assert (rest, process.returncode) == ("saved\nclosed\n", code)


@pytest.mark.parametrize(("waits_in", "second"), [("iteration", signal.SIGTERM), ("save", signal.SIGINT)])
def test_a_second_signal_ends_the_process_without_hooks(waits_in, second):
    with script(waits_in) as process:
        if waits_in == "save":
            process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(second)
        rest = process.stdout.read()
    assert (rest, process.returncode) == ("", -second)


BUSY = """
import hashlib
from minding.engine import task
def compute(ctx):
    print("running", flush=True)
    # Keeps Python's handlers waiting and lets other threads run, as the graphs of MindSpore do.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
with task.start():
    task.use(compute).run()
"""


def test_signals_are_answered_also_in_compiled_code():
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) as process:
        killer = threading.Timer(10.0, process.kill)
        killer.start()
        process.stdout.readline()
        # Until it computes.
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        told = process.stderr.readline()
        # A second one within the handling of the first is not noticed.
        time.sleep(0.1)
        while process.poll() is None:
            # One that comes while the first is being handled waits for that.
            process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        killer.cancel()
        rest = process.stderr.read()
    expected = "minding: stopping after this iteration; a second signal (Ctrl-C again) ends the process at once\n"
    assert (told, rest, process.returncode) == (expected, "", -signal.SIGTERM)


def test_a_forked_process_receives_its_own_signals(capfd):
    with SignalGuard(lambda name: None, "stopping"):
        handler = signal.getsignal(signal.SIGTERM)
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == handler
        assert capfd.readouterr().err == ""


MATRICES_UNDER_SIGNALS = """
import signal
import numpy as np
from minding.engine.process.runtime import load

ms = load()
x = ms.Tensor(np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32))
expected = (x.asnumpy().astype(np.float64) @ x.asnumpy()).astype(np.float32)
signals = []
signal.signal(signal.SIGPROF, lambda number, frame: signals.append(number))
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
while len(signals) < 300:
    product = ms.ops.matmul(x, x).asnumpy()
signal.setitimer(signal.ITIMER_PROF, 0.0)
np.testing.assert_allclose(product, expected, atol=1e-3)
print("done")
"""


def test_signals_do_not_disturb_products_of_mindspore():
    # oneDNN's loops for AVX2 move the stack pointer; pytest would give the process a second stack for handlers.
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONFAULTHANDLER": ""}
    assert run_fresh(MATRICES_UNDER_SIGNALS, quiet=False, **environment) == ["done"]
