"""`kill -9` of the train command, and what is resumed afterwards."""

import json
import random
import signal
import subprocess
import time

import pytest
from of_algorithms import different

from minding.engine.checkpoint import list_checkpoints
from minding.engine.checkpoint.folder import step_of
from minding.engine.errors import MissingExtraError
from minding.engine.run.run_dir import RunDir
from proofs import kills as kill_proofs


@pytest.mark.parametrize("preset", kill_proofs.KILLED)
def test_a_proof_goes_past_a_thousand_gradient_steps(preset, monkeypatch, tmp_path):
    # MuJoCo writes a log into the current folder.
    monkeypatch.chdir(tmp_path)
    try:
        job = kill_proofs.make_job(preset)
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert job.gradient_steps > 1000
    assert job.gradient_steps >= kill_proofs.CHECKPOINTS


def test_a_preset_whose_environment_is_not_installed_is_left_out(monkeypatch, tmp_path, capsys):
    def make_job(preset, kills):
        raise MissingExtraError("ale-py", "atari", "env.env_id='ALE/Pong-v5'")

    monkeypatch.setattr(kill_proofs, "make_job", make_job)
    assert kill_proofs.main(["--only", "pong_ppo", "--docs", str(tmp_path)]) == 0
    assert "pong_ppo: left out: env.env_id='ALE/Pong-v5' needs the package 'ale-py'" in capsys.readouterr().err


def test_a_job_takes_about_forty_checkpoints_and_fills_its_buffer():
    job = kill_proofs.make_job("cartpole_dqn", env_step=5000)
    assert job.overrides[1:3] == ("run.max_env_step=5000", "run.ckpt_freq=48")
    assert job.overrides[-1] == "policy.other.buffer_size=2500"


def test_what_was_killed_often_enough_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def run_kills(job, runs):
        ran.append(job.kills)
        return {**kill_proofs.head_of(job), "kills": job.kills, "runs": 1, "equal": False, "different": ["metrics/a"]}

    monkeypatch.setattr(kill_proofs, "run_kills", run_kills)
    call = ["--only", "cartpole_dqn", "--docs", str(tmp_path)]
    assert [kill_proofs.main([*call, "--kills", kills]) for kills in ("2", "2", "3")] == [1, 0, 1]
    assert ran == [2, 3]
    assert "2 kills in 1 runs, DIFFERENT: metrics/a" in capsys.readouterr().out
    lines = (tmp_path / "results" / "kills.jsonl").read_text().splitlines()
    assert [json.loads(line)["kills"] for line in lines] == [2, 3]


def train_and_kill(job, folder, share):
    """Kills the command as soon as a checkpoint holds this share of the gradient steps."""
    run_dir = RunDir(folder / job.preset)
    command = kill_proofs.command_of(job, folder)
    with subprocess.Popen(
        command, cwd=kill_proofs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while process.poll() is None:
            saved = [step_of(path) for path in list_checkpoints(run_dir.checkpoints)]
            if saved and saved[-1] > share * job.gradient_steps:
                process.kill()
            time.sleep(0.02)
        assert process.returncode == -signal.SIGKILL, process.stdout.read()
    assert not run_dir.summary.exists()


# Both runs are made in fresh processes: one seed gives one run, too. Here rollouts are learned from, below a replay
# buffer; `test_resume` has the state of each algorithm, and `make proofs` kills all presets, more often.
@pytest.mark.slow
def test_the_train_command_killed_and_resumed_ends_as_without_a_kill(tmp_path):
    job = kill_proofs.make_job("cartpole_ppo", env_step=28_000)
    assert job.gradient_steps > 1000
    train_and_kill(job, tmp_path / "killed", random.Random(job.preset).uniform(0.2, 0.8))
    for folder in ("whole", "killed"):
        assert kill_proofs.train(job, tmp_path / folder)
    ends = [kill_proofs.outcome(RunDir.open(tmp_path / folder / job.preset)) for folder in ("whole", "killed")]
    assert different(*ends) == []


@pytest.mark.slow
def test_a_proof_kills_until_there_were_enough_and_compares(tmp_path):
    job = kill_proofs.make_job("cartpole_dqn", kills=1, env_step=3400)
    assert job.gradient_steps > 1000
    record = kill_proofs.run_kills(job, tmp_path)
    assert (record["different"], record["kills"], record["equal"]) == ([], 1, True)
