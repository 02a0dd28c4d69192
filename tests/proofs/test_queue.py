"""The queue: its order, what it leaves out, and that a run which is stopped and continued is the same run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minding.engine.checkpoint import list_checkpoints
from minding.engine.run.run_dir import RunDir
from proofs import run, runs
from proofs.run import main, run_queue
from proofs.runs import COMMITS, ROOT, Job, Results, RunFailed, parameter_digest, run_learning
from proofs.team_benchmark import benchmark_table

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
PATIENCE = 120.0
SMALL = ("run.final_episodes=2", "run.ckpt_freq=16", "policy.eval.freq=1000", "policy.eval.n_episode=3")
JOB = Job("learning", "cartpole_ppo", 0, 3_000, SMALL)


def call(folder):
    """A process that works through a queue of one job, with its rows and its runs in `folder`."""
    program = (
        "import sys; from pathlib import Path; from proofs import run, runs as started; from proofs.runs import Job\n"
        # At its low priority it would wait for the other tests.
        "run.stay_in_the_background = started.share_as_little = lambda *_: None\n"
        f"docs, runs = Path({str(folder / 'docs')!r}), Path({str(folder / 'runs')!r})\n"
        f"sys.exit(run.run_queue([{JOB!r}], started.Results(docs), runs))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def stopped_at_a_checkpoint(process, run_dir):
    """Ends the process by SIGTERM once its run has a checkpoint; returns its exit code."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and not list_checkpoints(run_dir.checkpoints):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(run_dir.summary.read_text())["stop_reason"] == "SIGTERM", out
    assert "SIGTERM: saving the run; the next call continues it" in out
    return process.returncode


@pytest.mark.slow
def test_a_stopped_and_continued_run_ends_as_without_a_stop(tmp_path, monkeypatch):
    whole = run_learning(JOB, tmp_path / "whole")
    folder = tmp_path / "runs" / JOB.folder
    run_dir = RunDir(folder / JOB.preset)
    assert stopped_at_a_checkpoint(call(tmp_path), run_dir) == 128 + signal.SIGTERM
    assert not (tmp_path / "docs").exists()
    monkeypatch.setattr(run, "stay_in_the_background", lambda: None)
    monkeypatch.setattr(runs, "share_as_little", lambda *_: None)
    assert run_queue([JOB], Results(tmp_path / "docs"), tmp_path / "runs") == 0
    assert [each.name for each in folder.iterdir() if each.is_dir()] == [JOB.preset]
    assert len((folder / COMMITS).read_text().split()) == 2
    (row,) = map(json.loads, (tmp_path / "docs/results/learning.jsonl").read_text().splitlines())
    assert parameter_digest(run_dir) == parameter_digest(RunDir(tmp_path / "whole" / JOB.folder / JOB.preset))
    assert {**row, "seconds": 0} == {**whole, "seconds": 0}
    assert Results(tmp_path / "docs").has(JOB)


def test_teams_are_in_the_queue_and_in_their_table(tmp_path, capsys):
    jobs = run.plan(run.parse_arguments(["--queue", "--only", "teams_vdn", "--seeds", "2"]))
    assert [(job.preset, job.seed, job.env_step) for job in jobs] == [
        ("vdn", n, 2_000_000) for n in (0, 1) for _ in range(7)
    ]
    assert jobs[4].command == "minding train vdn seed=0 run.max_env_step=2000000 env.env_id=smax/3m"
    with pytest.raises(SystemExit):
        main(["--only", "teams_vdn"])
    assert "also give --queue" in capsys.readouterr().err
    for seed, value in ((0, 1.5), (1, 2.0)):
        row = {"study": "teams_vdn", "variant": "3m", "preset": "vdn", "seed": seed, "settings_hash": "x"}
        Results(tmp_path).append(
            "studies", {**row, "eval_mean": value, "eval_info": {"battle_won": value / 2}, "env_step": 10}
        )
    source = {"note": "2M steps.", "source": "https://b", "scores": {"3m vdn": [1.9, 0.05]}}
    (tmp_path / "results/published.json").write_text(json.dumps({"teams": {"Others": source}}))
    of_3m, published = (
        line.split(" | ") for line in benchmark_table(Results(tmp_path)).splitlines() if "smax/3m" in line
    )
    assert of_3m[6] == "1.75 (1.50 to 2.00; IQM 1.75; 2 seeds), 88 % won, after 10 steps"
    assert of_3m[5] == "not measured"
    assert published[5:7] == ["", "1.90 ± 0.05"]


def test_what_has_a_row_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def learn(job, runs, resume):
        assert resume
        ran.append((job.preset, job.seed))
        if job.seed == 1:
            raise RunFailed("out of memory")
        row = {"preset": job.preset, "seed": job.seed, "command": job.command}
        return {**row, "settings_hash": "x", "eval_mean": 1.0, "eval_std": 0.0, "seconds": 1.0}

    monkeypatch.setattr(run, "run_learning", learn)
    monkeypatch.setattr(run, "stay_in_the_background", lambda: None)
    monkeypatch.setattr(run.proof_pages, "update", lambda results: None)
    given = ["--queue", "--only", "hopper_ppo", "--seeds", "3", "--docs", str(tmp_path / "docs")]
    given += ["--runs", str(tmp_path / "runs")]
    assert main(given) == 1
    assert main(given) == 1
    assert ran == [("hopper_ppo", 0), ("hopper_ppo", 1), ("hopper_ppo", 2), ("hopper_ppo", 1)]
    assert "learning hopper_ppo seed 1: FAILED\nout of memory" in capsys.readouterr().err


def test_a_second_queue_does_not_start(tmp_path, capsys):
    runs = tmp_path / "runs"
    lock = f"from minding.engine.run.lock import RunLock; RunLock({str(runs)!r}).acquire()"
    hold = f"{lock}; print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "1\n"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "stay_in_the_background", lambda: None)
            assert run_queue([JOB], Results(tmp_path / "docs"), runs) == 2
        process.communicate("\n")
    assert "another queue is at work: " in capsys.readouterr().err
    assert not Path(runs / JOB.folder).exists()
