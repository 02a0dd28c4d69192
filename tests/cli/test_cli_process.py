"""The process of a command: output that nobody takes, and signals while nothing is to be saved."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minding.cli import run
from minding.engine import Config, OnlineRLContext, RunDir
from minding.engine.chain.lanes import WorkerStatus
from minding.engine.checkpoint import newest_checkpoint, save_checkpoint
from minding.engine.run.status import StatusFile
from minding.policies import kernels

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
CALLED = (signal.SIGINT, 130, "minding: interrupted\n"), (signal.SIGTERM, 143, "minding: ended by SIGTERM\n")


def shell(command, *args):
    """Runs `command` in bash with `args` as $1 ...; returns what it was."""
    return subprocess.run(["bash", "-c", command, "bash", *args], capture_output=True, text=True, env=ENV, check=False)


PRINTS = """
import os, sys
from minding.cli.process import prepare_output, report_lost_output
prepare_output()
report_lost_output("lost: {reason}")
for line in range(3):
    print("line", flush=True)
    while line == 0 and os.path.exists(sys.argv[1]):
        pass
os.write(1, b"from compiled code")
open(sys.argv[2], "w").write("done")
"""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        # The reader closes the pipe before it says so: the shell holds it as long as it lives.
        ('| (head -1; exec <&-; rm "$3")', "lost: Broken pipe\n"),
        (">/dev/full", "lost: No space left on device\n"),
        (">&-", ""),
        (">&- 2>&- <&-", ""),
        ('2>&1 | (head -1; exec <&-; rm "$3")', ""),
    ],
)
def test_output_that_cannot_be_written_does_not_end_the_program(output, message, tmp_path):
    waits = tmp_path / "reader"
    if "head" in output:
        waits.touch()
    command = f'"$1" -c "$2" "$3" "$4" {output}; exit ${{PIPESTATUS[0]}}'
    done = shell(command, sys.executable, PRINTS, waits, tmp_path / "file")
    assert (done.returncode, done.stderr) == (0, message)
    # What was printed did not get into the file that took the number of a stream.
    assert (tmp_path / "file").read_text() == "done"


def test_a_character_that_the_locale_lacks_is_replaced():
    script = "from minding.cli.process import prepare_output; prepare_output(); print('1 \\xb1 0', flush=True)"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=ENV | locale, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("1 ? 0\n", "", 0)


WAITS = """
import ctypes, hashlib, os, sys, threading, time
from minding.cli.process import end_at_signals
end_at_signals()
if sys.argv[1] == "run":
    from minding.engine.process.signals import SignalGuard
    taken = threading.Event()
    with SignalGuard(lambda name: taken.set()):
        print("ready", flush=True)
        taken.wait(60)
    print("taken", flush=True)
if sys.argv[1] == "graph":
    # MindSpore takes the signal, and sends SIGTERM.
    from minding.engine.process import runtime
    from minding.policies import kernels
    kernels.prepare(1)
    runtime.run_small_graph(runtime.load())
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
if sys.argv[1] == "end":
    # The program is over while another thread says that it ends.
    write, os.write = os.write, lambda *given: (time.sleep(1), write(*given))
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**6)
    sys.exit()
ctypes.CDLL(None).sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "code", "line", "after"),
    [*((*each, after) for each in CALLED for after in ("nothing", "end")), (*CALLED[0], "graph")],
)
def test_a_signal_ends_a_command_with_one_line(number, code, line, after):
    if after == "graph" and not kernels.compiled():
        pytest.skip("without the kernels it is SIGTERM")
    command = [sys.executable, "-c", WAITS, after]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert (process.stderr.read(), process.wait()) == (line, code)


def test_signals_end_the_run_and_afterwards_the_command():
    command = [sys.executable, "-c", WAITS, "run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert [process.stdout.readline() for _ in range(2)] == ["taken\n", "ready\n"]
        process.send_signal(signal.SIGINT)
        assert (process.stderr.read(), process.wait()) == ("minding: interrupted\n", 130)


def test_a_signal_ends_a_command_that_waits_for_a_thread():
    begin, _ = WAITS.split("if sys.argv", 1)
    begin += "threading.Thread(target=time.sleep, args=(60,)).start()\n"
    begin += "from minding.cli.process import end_by_default\nend_by_default()\n"
    command = [sys.executable, "-c", f"{begin}print('ready', flush=True)\n"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV) as process:
        assert process.stdout.readline() == "ready\n"
        # Its main thread is waiting by now, or soon.
        time.sleep(0.1)
        process.terminate()
        assert process.wait(timeout=30) == -signal.SIGTERM


STARTS = """
import os, signal, subprocess, time
{begin}
started = subprocess.Popen(["sleep", "20"])
forked = os.fork()
if forked == 0:
    time.sleep(20)
    os._exit(0)
started.terminate()
os.kill(forked, signal.SIGTERM)
print(started.wait(), os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(1)
"""


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        ("import minding.envs; from minding.cli.process import end_at_signals; end_at_signals()", 143),
        ("from minding.engine.process.signals import SignalGuard as G; G(lambda _: os._exit(5)).__enter__()", 5),
        ("from minding.engine.process.spawn import become_worker; become_worker()", 0),
    ],
    ids=["command", "run", "worker"],
)
def test_an_environment_can_end_the_processes_that_it_starts(begin, code):
    command = [sys.executable, "-c", STARTS.format(begin=begin)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, check=False)
    assert (done.stdout, done.returncode) == ("-15 -15\n", code)


def test_a_signal_during_the_import_of_mindspore_is_one_line():
    command = [sys.executable, "-m", "minding", "doctor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while not re.search(r"mindspore/.*\.so", maps.read_text()):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert (process.stderr.read(), process.wait()) == ("minding: interrupted\n", 130)


@pytest.mark.slow
def test_a_run_whose_reader_goes_away_trains_to_its_end(tmp_path):
    settings = ["run.max_env_step=2048", "policy.collect.n_sample=256", "run.final_episodes=2"]
    settings += [f"run.out_dir={tmp_path}", "exp_name=run"]
    command = '"$@" | head -1; exit ${PIPESTATUS[0]}'
    done = shell(command, sys.executable, "-m", "minding", "train", "cartpole_ppo", *settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"ppo on CartPole-v1, seed 0, in {tmp_path / 'run'}\n"
    assert "Broken pipe: the run continues without its output" in done.stderr
    assert newest_checkpoint(tmp_path / "run" / "ckpt")
    assert (tmp_path / "run" / "summary.json").is_file()


def test_status_shows_where_a_run_is_and_its_process(tmp_path, capsys, monkeypatch, refused, printed):
    run_dir = RunDir.create(Config(exp_name="cart", run={"out_dir": str(tmp_path)}))
    assert "has no status.json: it has not begun" in refused("status", run_dir.path)
    ctx, file = OnlineRLContext(total_step=12), StatusFile(run_dir.status)
    ctx.env_step, ctx.train_iter = 6144, 48
    worker = WorkerStatus("collector", "actor", "node-b", 4711, "StepCollector", 1, 2, 3.25, 1)
    file.write(ctx, 100_000, [worker])
    first, second, workers, header, line = printed("status", run_dir.path).splitlines()
    assert f"cart: running, process {os.getpid()} on " in first
    assert second == "  iteration 12, 6,144 of 100,000 environment steps, gradient step 48"
    assert workers == "  Workers:"
    assert header.split() == ["worker", "is", "on", "does", "weights", "backlog", "waited", "restarts"]
    assert " ".join(line.split()) == "collector actor 4711 node-b StepCollector 1 old 2 3.2 s 1"
    # Another process has its id now.
    file._born = "1"
    file.write(ctx, 100_000, [])
    run(["status", str(run_dir.path)])
    out = capsys.readouterr().out
    assert re.search(rf"gone: process {os.getpid()} on .* no longer runs; last report 20.* UTC \(0 s ago\); ", out)
    assert f"without a checkpoint; minding train {run_dir.path}/config.yaml starts it again" in out
    save_checkpoint(run_dir.checkpoints / "iter_48", {}, {"train_iter": 48})
    assert f"; minding resume {run_dir.path} continues the run" in printed("status", run_dir.path)
    file.write(ctx, 100_000, [worker], "failed", "ValueError: broken")
    run(["status", str(run_dir.path)])
    out = capsys.readouterr().out
    assert "cart: failed (ValueError: broken), 20" in out
    assert "  Workers, at the last report:\n" in out
    # Seeds of which one has not begun.
    (tmp_path / "settings.yaml").touch()
    for seed in range(2):
        RunDir.create(Config(exp_name=f"seed_{seed}", run={"out_dir": str(tmp_path)}))
    StatusFile(tmp_path / "seed_0" / "status.json").write(ctx, 100_000, [])
    lines = printed("status", tmp_path).splitlines()
    assert "seed_0: running, process" in lines[0]
    assert lines[2:] == [f"{tmp_path}/seed_1: has not started"]
