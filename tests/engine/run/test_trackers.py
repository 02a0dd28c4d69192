"""Trackers: each row once, also after a kill and a resume; failures cost no step."""

import math
import posixpath
import re
import struct
import sys

import pytest

from minding.engine import Config, OnlineRLContext, RunDir
from minding.engine.run.metrics import read_metrics
from minding.engine.run.trackers import Names, Tracker, records
from minding.middleware.online_logger import online_logger


class Recorder:
    """A tracker's server and its client: rows by the id of a run; `broken` makes it fail."""

    def __init__(self):
        self.runs, self.broken, self.calls, self.finished, self.tells = {}, False, 0, 0, False

    def start(self, run, id):
        self._answer()
        self.about, self.id = run, id or f"run-{len(self.runs)}"
        self.runs.setdefault(self.id, [])
        return self.id, len(self.runs[self.id]) if self.tells else None

    def log(self, rows):
        self._answer()
        self.runs[self.id].extend((row.number, row.step, dict(row.values)) for row in rows)

    def finish(self):
        self.finished += 1

    def _answer(self):
        self.calls += 1
        if self.broken:
            raise ConnectionError("no route\nto host")


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def logger_in(recorder, monkeypatch):
    """A new `online_logger` in a folder, with the recorder as its tracker: what a process that starts again makes."""
    # Its name is that of the function, too.
    module = sys.modules["minding.middleware.online_logger"]
    monkeypatch.setattr(module, "make_loggers", lambda names, run_dir: [Tracker("recorder", recorder, run_dir)])
    run = {"max_env_step": 1000, "log_freq": 0.5, "metrics_freq": 8, "loggers": []}
    return lambda folder: online_logger(Config(exp_name="run", seed=3, run=run), folder, progress=False)


def iterate(logger, begin, end):
    for number in range(begin, end):
        clock = {"total_step": number, "env_step": 4 * number, "train_iter": 2 * number}
        logger(OnlineRLContext(**clock, train_output={"loss": math.nan if number == 3 else float(number)}))


def check_rows(sent, run_dir):
    """What was sent are the rows of metrics.csv, in their order."""
    table = read_metrics(run_dir.metrics)
    assert [number for number, _, _ in sent] == list(range(len(table["env_step"])))
    assert [step for _, step, _ in sent] == table["env_step"].tolist()
    for number, _, values in sent:
        # NaN is a value that is sent.
        written = {name: column[number] for name, column in table.items() if not name.startswith("time/")}
        for name, value in written.items():
            assert values.get(name, math.nan) == value or (math.isnan(value) and math.isnan(values.get(name, value)))


@pytest.mark.parametrize("blocked", [False, True])
def test_a_tracker_gets_the_rows_of_the_file(blocked, tmp_path, recorder, logger_in, caplog):
    if blocked:
        # In place of the folder.
        (tmp_path / "trackers").write_text("")
    logger = logger_in(tmp_path)
    iterate(logger, 1, 9)
    logger.close()
    (sent,) = recorder.runs.values()
    check_rows(sent, RunDir(tmp_path))
    assert (len(sent), recorder.finished, recorder.about.settings["seed"], caplog.records) == (4, 1, 3, [])
    assert math.isnan(sent[1][2]["train/loss"])


@pytest.mark.parametrize("left", [0, 1, 2, 3, None])
def test_a_resumed_run_continues_in_the_trackers_run(tmp_path, recorder, logger_in, left):
    # None: the tracker does not tell how many rows it has, and lost none.
    recorder.tells = left is not None
    killed = logger_in(tmp_path)
    iterate(killed, 1, 5)
    state = killed.state_dict()
    iterate(killed, 5, 9)
    # As after a second: the tracker has rows that the checkpoint does not count.
    killed._write_rows()
    assert len(recorder.runs["run-0"]) == 4
    del recorder.runs["run-0"][4 if left is None else left :]
    resumed = logger_in(tmp_path)
    resumed.load_state_dict(state)
    iterate(resumed, 5, 13)
    resumed.close()
    assert list(recorder.runs) == ["run-0"]
    assert len(recorder.runs["run-0"]) == 6
    check_rows(recorder.runs["run-0"], RunDir(tmp_path))


def test_a_failing_tracker_warns_once_and_catches_up(tmp_path, recorder, logger_in, caplog):
    failing = logger_in(tmp_path)
    iterate(failing, 1, 3)
    failing._write_rows()
    recorder.broken = True
    iterate(failing, 3, 7)
    state = failing.state_dict()
    iterate(failing, 7, 9)
    failing.close()
    (warning,) = caplog.records
    assert "recorder failed (ConnectionError: no route to host): training continues" in warning.getMessage()
    assert len(recorder.runs["run-0"]) == 1
    recorder.broken = False
    resumed = logger_in(tmp_path)
    resumed.load_state_dict(state)
    iterate(resumed, 7, 9)
    resumed.close()
    check_rows(recorder.runs["run-0"], RunDir(tmp_path))
    assert len(recorder.runs["run-0"]) == 4


def test_rows_lost_with_a_folder_do_not_stop_what_follows(tmp_path, recorder, logger_in):
    first = logger_in(tmp_path / "first")
    iterate(first, 1, 5)
    state = first.state_dict()
    # A checkpoint of another folder: neither the tracker's run nor earlier rows are here.
    resumed = logger_in(tmp_path / "second")
    resumed.load_state_dict(state)
    iterate(resumed, 5, 9)
    resumed.close()
    assert [[number for number, _, _ in rows] for rows in recorder.runs.values()] == [[0, 1], [2, 3]]


ODD_NAMES = [
    "a%", "a(", "a[0]", "a,b", 'a"b', "a:b", "a b", "é", "a//b", "/a", "a/", "../a", "a/./b", "", ".", "..", "/", " a.",
    "x" * 300, "x" * 301, "a_", "a/b", "_", "损失/%",
]  # fmt: skip


def test_each_metric_has_a_name_of_its_own_that_mlflow_accepts():
    names = Names()
    given = [names.of(name) for name in ODD_NAMES]
    assert [names.of(name) for name in reversed(ODD_NAMES)] == given[::-1]
    assert len(set(given)) == len(given)
    for name in given:
        # The rule of mlflow.utils.validation.
        assert re.fullmatch(r"[/\w.\- ]{1,250}", name), name
        assert posixpath.normpath(name) == name not in (".", "..")
        assert not name.startswith(("/", "../"))
    assert [names.of(name) for name in ("a%", "a b", "é", "x/y.z-1")] == ["a_", "a b", "é", "x/y.z-1"]


def test_records_are_read_up_to_where_a_file_is_torn(tmp_path):
    def piece(kind, data):
        return struct.pack("<IHB", 0, len(data), kind) + data

    long = bytes(40_000)
    whole = b":W&B\x00\x00\x00" + piece(1, b"first")
    room = 32768 - len(whole) - 7
    whole += piece(2, long[:room]) + piece(4, long[room:]) + piece(1, b"last")
    file = tmp_path / "run.wandb"
    file.write_bytes(whole)
    assert list(records(file)) == [b"first", long, b"last"]
    file.write_bytes(whole[:-1])
    assert list(records(file)) == [b"first", long]
    file.write_bytes(b"")
    assert list(records(file)) == []
