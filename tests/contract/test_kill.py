"""`kill -9` of the train command, and what is resumed afterwards."""

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


# Both runs are made in fresh processes: one seed gives one run, too. `test_resume` has the state of each algorithm, and
# `make proofs` kills all presets, more often.
@pytest.mark.slow
def test_a_proof_kills_until_there_were_enough_and_compares(tmp_path):
    job = kill_proofs.make_job("cartpole_dqn", kills=1, env_step=1500)
    record = kill_proofs.run_kills(job, tmp_path)
    assert (record["different"], record["kills"], record["equal"]) == ([], 1, True)
