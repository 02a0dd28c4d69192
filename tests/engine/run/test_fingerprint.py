"""Fingerprints of states and metrics."""

import numpy as np

from benchmarks.fingerprint import fingerprint, tables_fingerprint
from minding.engine.checkpoint import BlockArray
from minding.engine.run.run_dir import RunDir


def state(**changes):
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows = BlockArray(rows, 4, [1, 2])
    leaves = {"rows": rows, "rng": {"state": 2**100}, "best": None, "seconds": 1.5, "empty": {}}
    return {"a": {**leaves, **changes}}


def test_the_smallest_difference_names_its_leaf():
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows[5, 1] = np.nextafter(rows[5, 1], np.float32(100))
    for name, value in {"rows": rows, "rng": {"state": 2**100 + 1}, "best": 0.0}.items():
        found, expected = fingerprint(state(**{name: value})), fingerprint(state())
        assert [key.split("/")[1] for key in expected if found[key] != expected[key]] == [name]
    same = fingerprint(state(seconds=9.0, row_seconds=3.0))
    assert same == fingerprint(state())
    for other in (np.zeros(4), np.zeros((2, 2), np.float32), np.zeros((4, 1), np.float32)):
        assert fingerprint({"x": other}) != fingerprint({"x": np.zeros(4, np.float32)})


def test_metrics_are_compared_column_by_column_without_time(tmp_path):
    for name, loss, seconds in (("a", "", 2.0), ("b", 0.25, 2.5)):
        (tmp_path / name).mkdir()
        text = f"env_step,train/loss,time/seconds\n8,0.5,{seconds}\n16,{loss},{seconds}\n"
        (tmp_path / name / "metrics.csv").write_text(text)
        (tmp_path / name / "episodes.csv").write_text(f"env_step,return,time/seconds\n8,{loss},{seconds}\n")
    a, b = tables_fingerprint(RunDir(tmp_path / "a")), tables_fingerprint(RunDir(tmp_path / "b"))
    assert list(a) == ["metrics/env_step", "metrics/train/loss", "episodes/env_step", "episodes/return"]
    assert [key for key in a if a[key] != b[key]] == ["metrics/train/loss", "episodes/return"]
