"""`kill -9` of the train command, resumed until it ends."""

import json

import pytest

from benchmarks import kill_proofs
from minding.configs import PRESETS


def test_every_preset_is_proved_but_those_of_environments_that_need_more_packages():
    assert {name for name in PRESETS if name not in kill_proofs.STEPS} == {"pong_ppo"}


def test_a_job_takes_about_forty_checkpoints_and_learns_early():
    job = kill_proofs.make_job("cartpole_dqn", env_step=4000)
    assert job.overrides[1:3] == ("run.max_env_step=4000", "run.ckpt_freq=48")
    assert "policy.learn.warmup=400" in job.overrides


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


# One preset an algorithm, and images; `make proofs` kills them all, more often.
@pytest.mark.slow
@pytest.mark.parametrize(
    "preset", ["cartpole_dqn", "cartpole_impala", "cartpole_a3c", "pendulum_ppo", "pendulum_sac", "pixelcatch_ppo"]
)
def test_the_train_command_killed_twice_and_resumed_ends_as_without_kills(preset, tmp_path):
    job = kill_proofs.make_job(preset, kills=2, env_step=max(1000, kill_proofs.STEPS[preset] // 5))
    record = kill_proofs.run_kills(job, tmp_path)
    assert (record["different"], record["kills"]) == ([], 2)
