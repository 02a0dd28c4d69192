"""metrics.csv: what the writer leaves in it, and what is read of a damaged one."""

import errno
import math
import os

import pytest

from minding.engine.files import Folder
from minding.engine.run import metrics
from minding.engine.run.metrics import CsvWriter, read_metrics, read_table


def test_csv_adds_later_columns_to_earlier_rows(tmp_path):
    writer = CsvWriter(tmp_path / "metrics.csv")
    for row in ({"env_step": 128}, {"env_step": 256, "eval, mean": math.nan}, {"env_step": 384, "eval, mean": None}):
        writer.write(row)
    assert (tmp_path / "metrics.csv").read_text() == 'env_step,"eval, mean"\n128,\n256,nan\n384,\n'
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_csv_resumes_after_the_saved_row(tmp_path):
    writer = CsvWriter(tmp_path / "metrics.csv")
    writer.write({"env_step": 1})
    state = writer.state_dict()
    writer.write({"env_step": 2, "lost": 1.0})
    resumed = CsvWriter(tmp_path / "metrics.csv")
    resumed.load_state_dict(state)
    resumed.write({"env_step": 3})
    assert (tmp_path / "metrics.csv").read_text() == "env_step\n1\n3\n"
    assert resumed.state_dict() == {"rows": 2, "columns": ["env_step"]}


def test_csv_keeps_rows_in_memory_while_they_cannot_be_written(tmp_path, caplog):
    folder = tmp_path / "run"
    folder.write_text("a file where the folder should be")
    writer = CsvWriter(folder / "metrics.csv")
    writer.write({"env_step": 1})
    writer.write({"env_step": 2, "loss": 0.25})
    assert len(caplog.records) == 1
    folder.unlink()
    writer.write({"env_step": 3, "loss": 0.5})
    assert (folder / "metrics.csv").read_text() == "env_step,loss\n1,\n2,0.25\n3,0.5\n"


WHOLE = b"env_step,loss\n1,0.5\n2,0.25\n"
# What follows the whole rows, and how many of its lines are damaged rows: the last one without an end may just be being
# written.
DAMAGES = {
    "torn row": (b"3,0.1", 0),
    "torn behind the comma": (b"3,", 0),
    "not UTF-8": (b"3,\xff\xfe\n", 1),
    "torn and not UTF-8": (b"3,0.1\n\x80\x81", 0),
    "zeros of a lost block": (bytes(64), 0),
    "a missing cell": (b"3\n", 1),
    "words": (b"3,high\n4,0.1\n", 1),
    "an open quote": (b'3,"0.1\n4,0.1\n', 1),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_continued_without_a_checkpoint_is_repaired(name, tmp_path, caplog):
    path = tmp_path / "metrics.csv"
    path.write_bytes(WHOLE + DAMAGES[name][0])
    whole = len(read_table(path).rows)
    writer = CsvWriter(path)
    writer.write({"env_step": 9, "loss": 0.75})
    assert read_table(path) == metrics.Table(["env_step", "loss"], [*read_table(path).rows[:whole], ["9", "0.75"]])
    assert writer.rows == whole + 1
    assert "metrics.csv: removed 1 row that cannot be read" in caplog.text


@pytest.mark.parametrize("name", DAMAGES)
def test_whole_rows_of_a_damaged_file_are_read(name, tmp_path, caplog):
    path = tmp_path / "metrics.csv"
    path.write_bytes(WHOLE + DAMAGES[name][0])
    assert read_metrics(path)["loss"].tolist()[:2] == [0.5, 0.25]
    assert (f": {DAMAGES[name][1]} of " in caplog.text) is (DAMAGES[name][1] > 0)


def test_damaged_rows_before_the_checkpoint_are_named(tmp_path, caplog):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"env_step\n1\n\xff\n3\n4\n")
    writer = CsvWriter(path)
    writer.load_state_dict({"rows": 3, "columns": ["env_step"]})
    assert "lost rows: 2 of the 3 that the checkpoint counts are left" in caplog.text
    writer.write({"env_step": 4})
    assert path.read_bytes() == b"env_step\n1\n3\n4\n"


def test_a_resumed_file_is_that_of_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("loss,new,env_step\n0.5,,1\n0.25,7.0,2\n")
    CsvWriter(path).load_state_dict({"rows": 1, "columns": ["env_step", "loss", "lag"]})
    assert path.read_text() == "env_step,loss,lag\n1,0.5,\n"
    path = tmp_path / "metrics.csv"
    path.write_text("env_step\n30\n40\n50\n")
    CsvWriter(path).load_state_dict({"rows": 4, "columns": ["env_step"]}, last_clock=40)
    assert path.read_text() == "env_step\n30\n40\n"


def test_a_file_that_is_no_table_is_set_aside(tmp_path, caplog):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    writer = CsvWriter(path)
    writer.load_state_dict({"rows": 0, "columns": []})
    writer.write({"env_step": 1})
    assert path.read_text() == "env_step\n1\n"
    assert "is not a table of metrics" in caplog.text
    (aside,) = tmp_path.glob("left-*-metrics.csv")
    assert aside.read_bytes().startswith(b"\x89PNG")


def test_half_a_line_is_repaired_before_the_next_row(tmp_path, caplog):
    path = tmp_path / "metrics.csv"
    writer = CsvWriter(path)
    writer.write({"env_step": 1})
    with open(path, "ab") as file:
        file.write(b"2")
    writer.write({"env_step": 3})
    assert path.read_text() == "env_step\n1\n3\n"
    assert writer.rows == 2


def test_a_resumed_file_is_cut_back_on_a_failing_disk(tmp_path, monkeypatch, caplog):
    path = tmp_path / "metrics.csv"
    path.write_text("env_step\n1\n2\n3\n")
    writer = CsvWriter(path)
    with monkeypatch.context() as failing:
        failing.setattr(Folder, "sync", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only")))
        writer.load_state_dict({"rows": 1, "columns": ["env_step"]})
        writer.write({"env_step": 2})
        assert path.read_text() == "env_step\n1\n2\n3\n"
    assert len(caplog.records) == 1
    writer.write({"env_step": 3})
    assert path.read_text() == "env_step\n1\n2\n3\n"
    assert writer.rows == 3
    writer.write({"env_step": 4})
    assert path.read_text() == "env_step\n1\n2\n3\n4\n"


def test_rows_are_on_the_disk_before_the_state_counts_them(tmp_path, monkeypatch):
    path, synced = tmp_path / "metrics.csv", []
    monkeypatch.setattr(Folder, "sync", lambda self, *names: synced.append((names, os.path.getsize(path))))
    writer = CsvWriter(path)
    writer.write({"env_step": 1})
    assert synced == []
    assert writer.state_dict() == {"rows": 1, "columns": ["env_step"]}
    assert sorted(synced) == [((), 11), (("metrics.csv",), len("env_step\n1\n"))]


def test_rows_that_are_lost_at_the_end_are_counted(tmp_path, caplog):
    (tmp_path / "run").write_text("a file where the folder should be")
    writer = CsvWriter(tmp_path / "run" / "metrics.csv")
    writer.write({"env_step": 1})
    writer.write({"env_step": 2})
    writer.close()
    assert "could not write the last 2 rows" in caplog.text
