"""The batch of an update that ended in NaN is kept where the error says."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from minding.engine import OnlineRLContext, Task
from minding.engine.errors import NonFiniteError, notes_of
from minding.training.session import nan_batch_kept

BATCH = {"reward": np.array([1.0, np.nan], np.float32), "index": np.array([[1, 0]], np.int32)}


def run(folder, batch):
    def learn(ctx):
        ctx.env_step += 10
        ctx.train_iter += 4
        if ctx.train_iter == 12:
            raise NonFiniteError("loss is nan", batch, {"loss": float("nan"), "entropy": 0.5})

    with Task().start(ctx=OnlineRLContext()) as task:
        task.use(learn)
        with pytest.raises(NonFiniteError) as caught, nan_batch_kept(folder, task):
            task.run()
    return notes_of(caught.value)


def test_rows_metrics_and_counters_are_written_with_a_note(tmp_path):
    notes = run(tmp_path / "nan", BATCH)
    path = tmp_path / "nan" / "iter_12.safetensors"
    assert f"the batch was kept in {path}" in notes
    kept = load_file(path)
    assert kept.keys() == BATCH.keys()
    assert np.array_equal(kept["reward"], BATCH["reward"], equal_nan=True)
    assert kept["index"].tolist() == [[1, 0]]
    about = json.loads(path.with_suffix(".json").read_text(), parse_constant=pytest.fail)
    assert about["metrics"] == {"loss": "nan", "entropy": 0.5}
    assert (about["counters"]["env_step"], about["counters"]["total_step"]) == (30, 2)
    assert about["error"] == "loss is nan"


def test_without_a_writable_batch_no_error_is_hidden(tmp_path):
    run(tmp_path / "nan", {})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "nan").write_text("in the way")
    assert any(f"the batch could not be kept in {tmp_path / 'nan'}" in note for note in run(tmp_path / "nan", BATCH))
