"""The TensorBoard writer, the console logger and the progress display."""

import io
import shutil
import struct
import sys

import pytest
from fakes import refuses

from minding.engine.config.compiler import RUN_SCHEMA
from minding.engine.console import console_logger
from minding.engine.errors import MissingExtraError
from minding.engine.run import loggers
from minding.engine.run.loggers import TensorBoardWriter, check_loggers
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


def events(folder):
    """The events of a folder, in the order of its files, read from the record format."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def scalars(folder):
    return [(event.step, value.tag, value.simple_value) for event in events(folder) for value in event.summary.value]


def test_tensorboard_shows_the_settings(tmp_path):
    writer = TensorBoardWriter(tmp_path / "tb")
    policy = {"type": "ppo", "learn": {"learning_rate": 3e-4}, "model": {"hidden": [64, 64]}}
    # A folder's name may have a byte that is not text.
    writer.open(
        {"seed": 3, "run": {"out_dir": "l\udce9"}, "env": {"spec": {"obs": {"shape": [4]}}}, "policy": policy}, step=0
    )
    writer.close()
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    values = {value.tag: value for event in events(tmp_path / "tb") for value in event.summary.value}
    (listing,) = values["settings/text_summary"].tensor.string_val
    assert "        learning_rate: 0.0003\n" in listing.decode()
    begun = HParamsPluginData.FromString(
        values["_hparams_/session_start_info"].metadata.plugin_data.content
    ).session_start_info
    assert {name: value.string_value or value.number_value for name, value in begun.hparams.items()} == {
        "seed": 3.0,
        "run.out_dir": "l\\udce9",
        "policy.type": "ppo",
        "policy.learn.learning_rate": 3e-4,
        "policy.model.hidden": "[64, 64]",
    }


def test_tensorboard_discards_what_came_after_a_resume(tmp_path):
    writer = TensorBoardWriter(tmp_path / "tb")
    writer.purge_after(1000, rows=4)
    writer.close()
    (start,) = [event for event in events(tmp_path / "tb") if event.HasField("session_log")]
    # START at a step discards what is there, too.
    assert (start.step, start.session_log.status) == (1001, start.session_log.START)


def test_a_logger_that_is_not_installed_is_refused(tmp_path, monkeypatch):
    assert RUN_SCHEMA["run"]["loggers"].allowed == ("tensorboard", *loggers.TRACKERS, "module:Name")
    monkeypatch.setitem(sys.modules, "swanlab", None)
    refuses(MissingExtraError, ("'swanlab'", lambda: check_loggers(["tensorboard", "swanlab"])))
    # A folder is not taken for the package of its name.
    (tmp_path / "madeup").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loggers, "TRACKERS", ("madeup",))
    refuses(MissingExtraError, ("'madeup'", lambda: check_loggers(["madeup"])))


def test_tensorboard_survives_its_folder_being_removed(tmp_path):
    writer = TensorBoardWriter(tmp_path / "tb")
    writer.write({"train/loss": 1.0}, step=1)
    shutil.rmtree(tmp_path / "tb")
    writer.write({"train/loss": 2.0, "eval/return_mean": 475.0}, step=2)
    writer.close()
    assert scalars(tmp_path / "tb") == [(2, "train/loss", 2.0), (2, "eval/return_mean", 475.0)]


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


def test_progress_of_self_play_shows_games_and_scores():
    clock, out = Clock(), io.StringIO()
    progress = Progress(1000, "four", file=out, clock=clock)
    scores = {"score_random": 1.0, "score_uct_100": 0.755}
    for second in (0, 10):
        clock.now = 100.0 + second
        progress.update(Status(20 * second, second, -0.1, 0.8, eval_info=scores, games=1234))
    assert out.getvalue().splitlines()[-1] == (
        "four 200/1,000 (20%)  1,234 games  score_random 1.00  score_uct_100 0.76  20 plies/s  1 updates/s  0:10 < 0:40"
    )


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


def test_speeds_are_short_and_never_is_more_than_all_done():
    speeds = {900: "900 steps/s", 21345: "21.3k steps/s", 150_000: "150k steps/s"}
    for steps, text in speeds.items():
        clock, out = Clock(), io.StringIO()
        progress = Progress(1000, "cartpole", file=out, clock=clock)
        progress.update(Status(0, 0))
        clock.now += 10.0
        progress.update(Status(10 * steps, 0))
        assert text in out.getvalue()
        assert "/1,000 (100%)" in out.getvalue()


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
