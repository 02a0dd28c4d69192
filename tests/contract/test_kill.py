"""`kill -9` of the train command, and what is resumed afterwards."""

import json

import pytest

from minding.engine.errors import MissingExtraError
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


def test_a_job_takes_forty_checkpoints_and_fills_its_buffer():
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


# Both runs are made in fresh processes: one seed gives one run, too. `test_resume` has the state of each algorithm, and
# `make proofs` kills all presets, more often.
@pytest.mark.slow
def test_a_proof_kills_until_there_were_enough_and_compares(tmp_path):
    job = kill_proofs.make_job("cartpole_dqn", kills=1, env_step=1500)
    record = kill_proofs.run_kills(job, tmp_path)
    assert (record["different"], record["kills"], record["equal"]) == ([], 1, True)
