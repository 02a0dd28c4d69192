"""Workers that die, raise or cannot be made; signals; and what is left behind: nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lane_toys import ExitOnce, ToyCollector, ToyContext, ToyEnv, ToyLearner, ToyPolicy, run

from minding.engine import Task
from minding.engine.errors import LaneError
from minding.engine.lanes import run as lanes_run
from minding.engine.lanes import supervised
from minding.engine.lanes.threads import ThreadTransport

# Deaths


class Kill:
    """Ends the collector's thread from outside, after the learner of some iterations."""

    def __init__(self, *steps):
        self._steps = steps

    def __call__(self, task, ctx):
        if ctx.total_step in self._steps:
            (handle,) = task.lanes._groups[0].workers[0]._running
            handle.kill()
            # Until it has ended, and not only been told to.
            assert handle.join(60.0) is not None


def test_with_every_worker_killed_the_result_is_undisturbed(tmp_path, caplog):
    sync = run(8, eval_freq=6)
    collector, evaluator = tmp_path / "collector", tmp_path / "evaluator"
    collector.mkdir()
    evaluator.mkdir()
    # In the middle of a rollout, between two, and in the middle of an evaluation.
    killed = run(
        8, {"max_staleness": 0, "transport": "threads"}, event=ExitOnce(collector, count=2, t=3), also=[Kill(5, 6)],
        eval_freq=6, eval_event=ExitOnce(evaluator, count=1),
    )  # fmt: skip
    assert killed.restarts == 4
    assert killed.rows == sync.rows
    assert killed.policy.state_dict()["rng"] == sync.policy.state_dict()["rng"]
    texts = [record.message for record in caplog.records]
    assert sum("the thread of collector ended" in text for text in texts) == 3
    assert sum("the thread of evaluator ended" in text for text in texts) == 1


def test_a_worker_gets_a_few_requests_at_a_time(tmp_path, monkeypatch):
    # All seven at once would be too many where a thousand are: both ends would wait for the other one to read.
    lanes = {"max_staleness": 6, "collectors": 1, "transport": "threads"}
    expected, sent = run(9, lanes).rows, []
    send = supervised.SupervisedWorker._send

    def counted(worker):
        done = send(worker)
        sent.append((worker._sent, worker.unanswered))
        return done

    monkeypatch.setattr(supervised.SupervisedWorker, "_send", counted)
    monkeypatch.setattr(supervised, "_WINDOW", 2)
    assert run(9, lanes).rows == expected
    assert max(sent) == (2, 7)
    # A new worker gets as many again, from the oldest on.
    died = run(9, lanes, event=ExitOnce(tmp_path, count=3, t=1))
    assert (died.restarts, died.rows) == (1, expected)


# Stops


@pytest.fixture(scope="module")
def breath():
    """Seconds in which a worker shows a sign of life, also on a busy machine: two whole runs with workers take them."""
    begin = time.monotonic()
    run(2, {"max_staleness": 0})
    return round(max(0.8, 2 * (time.monotonic() - begin)), 1)


def test_a_stopped_worker_is_reported_and_replaced(monkeypatch, caplog, breath):
    monkeypatch.setattr(supervised, "_FIRST_REPORT", 0.2)
    monkeypatch.setattr(supervised, "_SILENT", 0.0)
    pids = []

    def stop(task, ctx):
        if ctx.total_step in (2, 4):
            # The collector, then the evaluator.
            pids.append(task.lanes.worker_pids[-1])
            os.kill(pids[-1], signal.SIGSTOP)

    stopped = run(9, {"max_staleness": 0, "timeout": breath}, also=[stop], eval_freq=8)
    assert stopped.rows == run(9, eval_freq=8).rows
    texts = [record.message for record in caplog.records]
    for name in ("collector", "evaluator"):
        message = f"the process of {name} gave no sign of life for {breath:g} s (lanes.timeout); it is started again"
        assert texts.count(message) == 1
    stopped_by = f"which is stopped: `kill -CONT {pids[0]}` lets it continue; "
    said = f"for rollout 3 of collector (process {pids[0]}), {stopped_by}"
    said += f"without a sign of life it is replaced after {breath:g} s (lanes.timeout)"
    assert any(said in text for text in texts)


@pytest.mark.slow
def test_a_worker_that_is_slow_is_not_replaced(breath):
    def slow(collector, count, t):
        time.sleep(0.6 * breath if count == 1 else 0)

    # A rollout of more than twice the limit, in four steps.
    assert run(2, {"max_staleness": 0, "timeout": breath}, event=slow).restarts == 0


# A worker that is lost without a word


class Lost:
    """A handle of a worker on a machine that goes down after some answers: nothing arrives, nothing beats, and nothing
    is closed. Without answers it has never begun."""

    def __init__(self, handle, answers):
        self._handle, self._answers, self._begun, self.channel = handle, answers, answers > 0, self
        self.kind, self.where, self.pid, self.heartbeat = "actor", "actor on node B", None, self
        self.node, self.clock_error = "B", 0.25
        self.hindrance, self.join = (lambda: "is on a machine that does not answer"), (lambda timeout: None)
        self.has_better_place = lambda: False
        self.kill, self.close, self.killed = self._kill, handle.channel.close, False
        self.send = handle.channel.send

    @property
    def member(self):
        return self._handle.heartbeat.member

    @property
    def beats(self):
        return self._handle.heartbeat.beats if self._answers else int(self._begun)

    def expect(self, deadline):
        self._handle.heartbeat.expect(deadline)

    def receive(self, timeout=None):
        if not self._answers:
            raise TimeoutError
        message = self._handle.channel.receive(timeout)
        self._answers -= 1
        return message

    def _kill(self):
        self.killed = True
        self._handle.kill()


class LosingTransport(ThreadTransport):
    """Its first workers are lost: as many as there are numbers, after so many answers each."""

    def __init__(self, *answers):
        self.left, self.lost = [*answers], []

    def start(self, name, store, depth, cores, port=None):
        handle = super().start(name, store, depth, cores, port)
        if not self.left:
            return handle
        self.lost.append(Lost(handle, self.left.pop(0)))
        return self.lost[-1]


@pytest.fixture
def losing(monkeypatch):
    """Runs collectors of which the first are lost; returns the run and its transport."""

    def lose(*answers, steps=7):
        transport = LosingTransport(*answers)
        monkeypatch.setattr(lanes_run, "make_transport", lambda options: transport)
        lanes = {"transport": "threads", "max_staleness": 0, "timeout": 0.1, "start_timeout": 0.2}
        return run(steps, lanes), transport

    monkeypatch.setattr(supervised, "_CLOSE_TIMEOUT", 0.0)
    return lose


@pytest.mark.parametrize(
    ("answers", "limit"),
    [(3, "0.1 s (lanes.timeout)"), (0, "0.2 s (lanes.start_timeout, which is longer than lanes.timeout)")],
)
def test_a_silent_worker_is_replaced_and_nothing_changes(answers, limit, losing, caplog):
    found, transport = losing(answers)
    assert transport.lost[0].killed
    assert found.restarts == 1
    assert found.rows == run(7).rows
    assert f"the actor of collector gave no sign of life for {limit}; it is started again" in caplog.text


class Hook:
    """Counts its finish hooks."""

    def __init__(self):
        self.finished, self.called = [], 0

    def __call__(self, ctx):
        self.called += 1

    def finish(self, ctx):
        self.finished.append(ctx.total_step)


def failing(collector, error, match):
    """Runs a chain that fails; returns the error and the hook behind."""
    hook, policy, task = Hook(), ToyPolicy(), Task()
    with pytest.raises(error, match=match) as caught, task.start(True, ToyContext()):
        task.use(collector(policy)).use(ToyLearner(policy)).use(hook).run(max_step=5)
    assert task.stop_reason == "exception"
    assert task.lanes.worker_pids == ()
    return caught.value, hook


# Errors


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("of glass")
        self.lock = threading.Lock()


def raise_unpicklable(collector, number, t):
    raise Unpicklable


def test_an_error_that_cannot_be_pickled_keeps_type_and_message():
    error, hook = failing(
        lambda policy: ToyCollector(policy.mode, ToyEnv(), raise_unpicklable),
        LaneError,
        r"^test_lane_deaths\.Unpicklable: of glass\n",
    )
    assert "in middleware 'ToyCollector'" in error.__notes__[0]
    assert error.__notes__[-1] == "in middleware 'collect lane' (position 0, step 0)"
    assert hook.finished == [0]


# Signals, in real processes

SCRIPT = """
import sys
sys.path[:] = {path!r}
from pathlib import Path
import lane_toys as toys

def wait(thing, count, t=0):
    while count == 2:
        Path({ready!r}).touch()
        toys.time.sleep(0.01)

class Hook:
    def __call__(self, ctx): ...
    def finish(self, ctx):
        print("finish", ctx.total_step, self.task.stop_reason, self.task.resume_guarantee, flush=True)
    def close(self): print("close", flush=True)

def tell(task, ctx):
    Hook.task = task
    print(*task.lanes.worker_pids, flush=True)

toys.Record = lambda policy, *also: Both(also)
class Both(Hook):
    def __init__(self, also): self.also = also
    def __call__(self, ctx): [call(ctx) for call in self.also]

try:
    toys.run(100, {lanes!r}, eval_freq=2, also=[tell], **{{{event!r}: wait}})
except (KeyboardInterrupt, SystemExit) as end:
    print("ended by", repr(end))
"""


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


class Script:
    """A run in a process group of its own that has come to wait for a worker for ever."""

    def __init__(self, folder, lanes, event="event"):
        ready, self.temporary = folder / "ready", folder / "tmp"
        self.temporary.mkdir()
        code = SCRIPT.format(path=sys.path, ready=str(ready), lanes=lanes, event=event)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True, env={**os.environ, "TMPDIR": str(self.temporary)},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not ready.exists() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        self.children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
        self.workers = [pid for pid in self.children if "resource_tracker" not in command_of(pid)]

    def end(self, told=""):
        """Waits for the end; returns exit code, seconds and lines of output. Nothing may be left.

        Args:
          told: what is on standard error.
        """
        begin = time.monotonic()
        output, errors = self.process.communicate(timeout=60)
        seconds = time.monotonic() - begin
        deadline = time.monotonic() + 2
        while not all(map(gone, self.children)) and time.monotonic() < deadline:
            time.sleep(0.005)
        # Collector, evaluator, and what multiprocessing starts beside them.
        assert len(self.children) >= 2
        assert [pid for pid in self.children if not gone(pid)] == []
        assert list(self.temporary.iterdir()) == []
        mine = {str(self.process.pid), *self.children}
        assert [name for name in os.listdir("/dev/shm") if mine & set(name.replace("_", "-").split("-"))] == []
        assert errors == told
        return self.process.returncode, seconds, output.splitlines()


@pytest.fixture
def start(tmp_path):
    scripts = []

    def begin(*args):
        scripts.append(Script(tmp_path, *args))
        return scripts[-1]

    yield begin
    for script in scripts:
        script.process.kill()
        for pid in script.workers:
            if not gone(pid) and "spawn_main" in command_of(pid):
                os.kill(int(pid), signal.SIGKILL)
        script.process.communicate()


NOTICE = "minding: stopping after this iteration; a second signal (Ctrl-C again) ends the process at once\n"


@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGINT, True), pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow)]
)
def test_a_signal_while_a_rollout_is_awaited_ends_the_run(start, number, group):
    script = start({"max_staleness": 1})
    (os.killpg if group else os.kill)(script.process.pid, number)
    code, seconds, lines = script.end(told=NOTICE)
    assert code == 0
    assert seconds < 8
    # The iteration that waited is not counted; what is under way is collected anew by a run that resumes.
    end = "KeyboardInterrupt()" if number == signal.SIGINT else "SystemExit(143)"
    assert lines[-3:] == [f"finish 2 {number.name} in-flight", "close", f"ended by {end}"]
    assert sum(line.startswith("finish") for line in lines) == 1


@pytest.mark.parametrize(
    ("event", "stopped"), [("event", True), pytest.param("eval_event", False, marks=pytest.mark.slow)]
)
def test_workers_end_with_a_main_process_that_is_killed(start, event, stopped):
    script = start({"max_staleness": 0}, event)
    if stopped:
        for pid in script.workers:
            os.kill(int(pid), signal.SIGSTOP)
    script.process.kill()
    code, _, lines = script.end()
    assert code == -signal.SIGKILL
    assert not any(line.startswith("finish") for line in lines)
