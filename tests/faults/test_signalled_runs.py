"""`minding train` and signals, in real processes: saved, closed, gone in time, with the documented exit code."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minding.engine.checkpoint import load_checkpoint, newest_checkpoint
from minding.engine.run.run_dir import RunDir

pytestmark = pytest.mark.slow

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
PATIENCE = 120.0


class Run:
    """A run of `minding train` without an end, in worker processes, from its first metrics on."""

    def __init__(self, runs, folder, *overrides):
        settings = ["exp_name=run", f"run.out_dir={folder}", "run.max_env_step=100000000", "run.metrics_freq=256"]
        settings += ["env.backend=subprocess", "env.workers=2", "env.collector_env_num=2"]
        # One gradient step per call: its graph has no loop, and compiles faster.
        settings += ["policy.learn.n_epoch=1", "policy.learn.n_minibatch=1", *overrides]
        command = [sys.executable, "-m", "minding", "train", "cartpole_ppo", *settings, "--no-progress"]
        self.dir = RunDir(folder / "run")
        self.process = subprocess.Popen(
            command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        # From now on it is ended with the test, also if it never gets that far.
        runs.append(self)
        self.wait_for(self.dir.metrics.is_file)
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        # The thread that starts workers is not the main one.
        self.workers = [pid for thread in threads for pid in (thread / "children").read_text().split()]

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def catches(self, number):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)

    def end(self):
        """Waits for the end; returns the exit code and the seconds it took. No worker may be left."""
        begin = time.monotonic()
        output, _ = self.process.communicate(timeout=PATIENCE)
        seconds = time.monotonic() - begin
        deadline = time.monotonic() + 5.0
        while any(Path(f"/proc/{pid}").exists() for pid in self.workers) and time.monotonic() < deadline:
            os.sched_yield()
        assert len(self.workers) >= 2
        assert not [pid for pid in self.workers if Path(f"/proc/{pid}").exists()]
        return self.process.returncode, seconds, output


@pytest.fixture
def start(tmp_path):
    runs = []
    yield lambda *overrides: Run(runs, tmp_path, *overrides)
    for run in runs:
        run.process.kill()
        run.process.wait()
        run.process.stdout.close()


def test_the_first_signal_saves_closes_and_leaves(start):
    run = start()
    os.killpg(run.process.pid, signal.SIGINT)
    code, seconds, output = run.end()
    # MindSpore turns SIGINT into SIGTERM, once it has run a graph.
    assert code in (130, 143), output
    assert seconds < 10.0
    assert {130: "SIGINT", 143: "SIGTERM"}[code] in output
    _, manifest = load_checkpoint(newest_checkpoint(run.dir.checkpoints))
    assert manifest["train_iter"] > 0
    assert manifest["guarantee"] == "exact"
    last_row = run.dir.metrics.read_text().splitlines()[-1]
    assert last_row.startswith(f"{manifest['env_step']},")


def test_a_signal_does_not_wait_for_an_evaluation(start):
    # A million episodes: without a signal this evaluation takes hours.
    run = start("policy.eval.freq=512", "policy.eval.n_episode=1000000")
    seen = [0]

    def evaluates():
        # Metrics stand still from the begin of the evaluation on.
        rows = len(run.dir.metrics.read_text().splitlines())
        seen.append(rows)
        time.sleep(0.02)
        return len(seen) > 50 and len(set(seen[-50:])) == 1

    run.wait_for(evaluates)
    run.process.send_signal(signal.SIGTERM)
    code, seconds, output = run.end()
    assert code == 143, output
    assert seconds < 10.0
    header, *rows = run.dir.metrics.read_text().splitlines()
    column = header.split(",").index("eval/return_mean")
    assert all(row.split(",")[column] == "" for row in rows)


def test_a_second_signal_ends_run_and_workers_at_once(start):
    run = start()
    run.process.send_signal(signal.SIGINT)
    # The first one has been taken when SIGTERM has no handler any more.
    run.wait_for(lambda: not run.catches(signal.SIGTERM))
    run.process.send_signal(signal.SIGTERM)
    code, seconds, output = run.end()
    assert code == -signal.SIGTERM, output
    assert seconds < 5.0
