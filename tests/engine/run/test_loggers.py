"""The TensorBoard writer, the console logger and the progress display."""

import io
import shutil
import struct

import pytest

from minding.engine.console import console_logger
from minding.engine.run.loggers import TensorBoardWriter
from minding.engine.run.progress import Progress, Status


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def scalars(folder):
    """All (step, tag, value) in the event files of a folder, read from the record format."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_tensorboard_files_hold_what_was_written(tmp_path):
    writer = TensorBoardWriter(tmp_path / "tb")
    writer.write({"train/loss": 0.5, "eval/return_mean": 475.0}, step=1000)
    writer.close()
    assert scalars(tmp_path / "tb") == [(1000, "train/loss", 0.5), (1000, "eval/return_mean", 475.0)]


def test_tensorboard_survives_its_folder_being_removed(tmp_path):
    writer = TensorBoardWriter(tmp_path / "tb")
    writer.write({"loss": 1.0}, step=1)
    shutil.rmtree(tmp_path / "tb")
    writer.write({"loss": 2.0}, step=2)
    writer.close()
    assert scalars(tmp_path / "tb") == [(2, "loss", 2.0)]


def test_tensorboard_that_cannot_write_warns_once_and_goes_on(tmp_path, caplog):
    (tmp_path / "tb").write_text("a file where the folder should be")
    writer = TensorBoardWriter(tmp_path / "tb")
    writer.write({"loss": 1.0}, step=1)
    writer.write({"loss": 2.0}, step=2)
    writer.close()
    assert len(caplog.records) == 1


def test_plain_progress_prints_at_most_one_line_every_five_seconds():
    clock, out = Clock(), io.StringIO()
    progress = Progress(1000, "cartpole", file=out, clock=clock)
    for second in range(11):
        clock.now = 100.0 + second
        progress.update(Status(clock=50 * second, train_iter=10 * second))
    progress.close()
    assert out.getvalue().splitlines() == [
        "cartpole 0/1,000 (0%)  0:00",
        "cartpole 250/1,000 (25%)  50 steps/s  10 updates/s  0:05 < 0:15",
        "cartpole 500/1,000 (50%)  50 steps/s  10 updates/s  0:10 < 0:10",
    ]


def test_progress_shows_returns_and_metrics_that_are_not_finite():
    out = io.StringIO()
    Progress(100, "run", file=out, clock=Clock()).update(Status(10, 5, 21.25, 480.0, ("train/loss",)))
    assert "return 21.2  eval 480.0  NaN or infinite: train/loss" in out.getvalue()


def test_a_terminal_gets_a_bar_that_close_leaves_at_the_last_status(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    clock, out = Clock(), Terminal()
    progress = Progress(1000, "cartpole", file=out, clock=clock)
    progress.update(Status(0, 0))
    clock.now += 0.1
    progress.update(Status(1000, 20, eval_return=500.0))
    progress.close()
    assert "100%" in out.getvalue()
    assert "eval 500.0" in out.getvalue()


@pytest.mark.parametrize(("steps", "text"), [(900, "900 steps/s"), (21345, "21.3k steps/s"), (150_000, "150k steps/s")])
def test_speeds_are_short(steps, text):
    clock, out = Clock(), io.StringIO()
    progress = Progress(10**6, file=out, clock=clock)
    progress.update(Status(0, 0))
    clock.now += 10.0
    progress.update(Status(10 * steps, 0))
    assert text in out.getvalue()


def test_the_console_logger_writes_to_the_current_stderr(monkeypatch):
    logger = console_logger()
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)
    level = logger.level
    out = io.StringIO()
    console_logger()
    monkeypatch.setattr("sys.stderr", out)
    logger.info("solved")
    logger.setLevel(level)
    assert out.getvalue() == "solved\n"
