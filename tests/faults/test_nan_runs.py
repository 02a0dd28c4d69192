"""A whole run whose update ends in infinity: one message and its batch kept; or it goes on."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from minding import training
from minding.configs import compile_run
from minding.engine import Config, RunDir, Task
from minding.engine.checkpoint import list_checkpoints
from minding.engine.errors import NonFiniteError, notes_of
from minding.training.session import nan_batch_kept

pytestmark = pytest.mark.eager


def train(tmp_path, on_nan):
    user = Config(
        exp_name="run",
        run={"out_dir": str(tmp_path), "max_env_step": 128, "final_episodes": 1, "loggers": []},
        env={"env_id": "flaky:Huge", "collector_env_num": 2, "evaluator_env_num": 1, "normalize_reward": False},
        policy={
            "type": "ppo",
            "model": {"hidden": [8]},
            "learn": {"n_epoch": 1, "n_minibatch": 1, "on_nan": on_nan, "normalize_advantage": False},
            "collect": {"n_sample": 32},
        },
    )
    cfg = compile_run(user)
    return training.train(cfg, RunDir.create(cfg), progress=False)


def test_stop_names_metric_and_place_and_keeps_the_rows(tmp_path):
    with pytest.raises(NonFiniteError, match="ppo: loss is inf after this update") as caught:
        train(tmp_path, "stop")
    path = tmp_path / "run" / "nan" / "iter_0.safetensors"
    assert f"the batch was kept in {path}" in notes_of(caught.value)
    assert any("'multistep_trainer' (position 3, step 0)" in note for note in notes_of(caught.value))
    kept = load_file(path)
    assert kept["obs"].shape == (32, 3)
    assert kept["return"].max() > 1e29
    about = json.loads(path.with_suffix(".json").read_text(), parse_constant=pytest.fail)
    assert (about["counters"]["env_step"], about["counters"]["total_step"]) == (32, 0)
    assert about["metrics"]["loss"] == "inf"
    assert about["error"] in str(caught.value)
    # The update left finite parameters behind, because its gradient was clipped: they are not worth a checkpoint.
    assert list_checkpoints(tmp_path / "run" / "ckpt") == []


@pytest.mark.parametrize(("batch", "told"), [({}, None), ({"reward": np.zeros(2)}, "the batch could not be kept in ")])
def test_without_a_writable_batch_no_error_is_hidden(batch, told, tmp_path):
    (tmp_path / "nan").write_text("in the way")
    with pytest.raises(NonFiniteError) as caught, nan_batch_kept(tmp_path / "nan", Task().start()):
        raise NonFiniteError("loss is nan", batch, {"loss": float("nan")})
    assert [told in note for note in notes_of(caught.value)] == [True] * (told is not None)


@pytest.mark.slow
def test_skip_goes_on_to_the_end_without_an_update(tmp_path, caplog):
    summary = train(tmp_path, "skip")
    assert (summary.env_step, summary.train_iter) == (128, 0)
    assert caplog.text.count("this update: it was undone (learn.on_nan=skip)") == 1
    header, *rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    skipped = header.split(",").index("train/skipped")
    assert {row.split(",")[skipped] for row in rows} == {"1.0"}
    assert not (tmp_path / "run" / "nan").exists()
