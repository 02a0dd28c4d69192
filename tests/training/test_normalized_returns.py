"""Runs that learn from data with reference returns say their returns normalized, others that theirs are raw."""

import csv
import dataclasses
import math

import pytest
from of_algorithms import SMALL, recorded

from minding import training
from minding.cli.summary import _figures
from minding.configs import compile_run
from minding.engine.config.config import Config
from minding.engine.data.dataset import load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.references import References, carrying, common
from minding.engine.errors import DataError
from minding.engine.run.run_dir import RunDir

pytestmark = pytest.mark.shared_graphs


@pytest.mark.parametrize("references", [References(20.0, 500.0), None], ids=["with references", "without"])
def test_a_run_logs_normalized_returns_if_data_have_references(references, tmp_path):
    data = load_dataset(recorded("CartPole-v1"))
    save_dataset(tmp_path / "data", dataclasses.replace(data, about=carrying(data.about, references)))
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "bc", "other": {"data": str(tmp_path / "data")}})
    short = [
        "run.max_train_iter=8",
        "policy.eval.freq=4",
        "policy.learn.steps_per_call=4",
        "policy.learn.batch_size=32",
    ]
    cfg = compile_run(user, [*SMALL, *short, f"run.out_dir={tmp_path}", "exp_name=run"])
    summary = training.train(cfg, RunDir.create(cfg), progress=False)
    with open(RunDir.open(tmp_path / "run").metrics, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["eval/return_mean"]]
    shown = _figures(cfg, summary)["normalized return"]
    assert len(rows) == 1
    if references is None:
        assert "eval/normalized" not in rows[0]
        assert math.isnan(summary.eval_normalized)
        assert shown == "not known: the data carry no reference returns, so the return is raw"
        return
    for row in rows:
        score = 100 * (float(row["eval/return_mean"]) - 20) / 480
        assert float(row["eval/normalized"]) == pytest.approx(score, rel=1e-9)
    assert summary.eval_normalized == pytest.approx(100 * (summary.eval_return - 20) / 480, rel=1e-9)
    assert shown == f"{summary.eval_normalized:.1f} (random 0, expert 100)"


def test_references_score_0_and_100_and_joined_sets_agree():
    first = References(-1170.0, -136.0)
    assert [first.normalized(each) for each in (-1170.0, -136.0, -653.0)] == [0.0, 100.0, 50.0]
    assert common([None, first, first]) == first
    assert common([None]) is None
    with pytest.raises(DataError, match=r"different reference returns .* --random-return R --expert-return R"):
        common([first, References(-1170.0, -100.0)])
