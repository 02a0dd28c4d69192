"""The TensorBoard writer, the console logger and the progress display."""

import io

import pytest

from minding.engine.config.compiler import RUN_SCHEMA
from minding.engine.console import console_logger
from minding.engine.run import loggers
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


def test_the_settings_name_all_loggers():
    assert RUN_SCHEMA["run"]["loggers"].allowed == ("tensorboard", *loggers.TRACKERS, "module:Name")


def test_tensorboard_that_cannot_write_warns_once_and_goes_on(tmp_path, caplog):
    (tmp_path / "tb").write_text("a file where the folder should be")
    writer = TensorBoardWriter(tmp_path / "tb")
    writer.write({"train/loss": 1.0}, step=1)
    writer.write({"train/loss": 2.0}, step=2)
    writer.close()
    assert len(caplog.records) == 1


def test_plain_progress_prints_a_line_every_five_seconds():
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
    out = io.StringIO()
    Progress(100, "run", file=out, clock=Clock()).update(Status(10, 5, 21.25, 480.0, ("train/loss",)))
    assert "return 21.2  eval 480.0  NaN or infinite: train/loss" in out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_shows_nothing_more_once_its_output_was_closed(terminal):
    out = Terminal() if terminal else io.StringIO()
    progress = Progress(100, "run", file=out, clock=Clock())
    out.close()
    assert not progress.due()
    progress.update(Status(10, 5))
    progress.flush()
    progress.close()


def test_a_terminal_gets_a_bar_that_stays_at_the_last_status(monkeypatch):
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
