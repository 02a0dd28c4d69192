"""Commands in processes of their own: how many at a time, how they end, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import seed_toys

from minding.engine.process.commands import Command, run_commands

TOYS = str(Path(seed_toys.__file__).parent)


@pytest.fixture(autouse=True)
def toys_are_found(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TOYS, *sys.path]))


def toys(folder, *codes):
    return [
        Command("seed_toys:until_told", [str(folder), str(number), str(code)], folder / f"{number}.txt")
        for number, code in enumerate(codes)
    ]


def started(folder):
    return sorted(path.name for path in folder.glob("started-*") if path.read_text())


def test_as_many_run_as_asked_for_and_a_failure_ends_no_other(tmp_path):
    commands, together = toys(tmp_path, 0, 3, 0), []

    def watch():
        if started(tmp_path) == ["started-0", "started-1"]:
            together.append(sum(command.running for command in commands))
            (tmp_path / "go").touch()

    assert run_commands(commands, 2, watch) is None
    assert [command.code for command in commands] == [0, 3, 0]
    assert together[0] == 2
    assert len(started(tmp_path)) == 3


def test_a_signal_reaches_those_that_run_and_no_other_is_started(tmp_path):
    commands, sent = toys(tmp_path, 0, 0, 0), []

    def watch():
        if len(started(tmp_path)) == 2 and not sent:
            # The terminal's Ctrl-C does not reach them besides: their sessions are their own.
            sessions = {os.getsid(int((tmp_path / name).read_text())) for name in started(tmp_path)}
            assert os.getsid(0) not in sessions
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    assert run_commands(commands, 2, watch) == "SIGINT"
    assert [command.code for command in commands] == [143, 143, None]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_while_watching_ends_them_all(tmp_path):
    commands = toys(tmp_path, 0, 0)

    def watch():
        if len(started(tmp_path)) == 2:
            raise ValueError("the screen has gone")

    with pytest.raises(ValueError, match="the screen has gone"):
        run_commands(commands, 2, watch)
    assert [command.code for command in commands] == [143, 143]


PARENT = """
import sys
from pathlib import Path
from minding.engine.process.commands import Command, run_commands
run_commands([Command("seed_toys:until_told", [sys.argv[1], "0", "0"], Path(sys.argv[1], "out"))], 1, lambda: None)
"""


def test_they_end_with_their_parent_even_if_both_were_stopped(tmp_path):
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path]) as parent:
        deadline = time.monotonic() + 60
        while not started(tmp_path):
            assert time.monotonic() < deadline
        child = Path("/proc") / (tmp_path / "started-0").read_text()
        os.kill(int(child.name), signal.SIGSTOP)
        parent.kill()
    deadline = time.monotonic() + 10
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:
        if time.monotonic() > deadline:
            os.kill(int(child.name), signal.SIGKILL)
            pytest.fail("it is still there")


def test_only_whole_lines_of_this_start_are_read(tmp_path):
    output = tmp_path / "out"
    output.write_text("of an earlier start\n")
    command = Command("seed_toys:until_told", [str(tmp_path), "0", "0"], output)
    assert command.printed() == []
    (tmp_path / "go").touch()
    run_commands([command], 1, lambda: None)
    with open(output, "a") as file:
        file.write("one\ntwo\nthr")
    assert command.printed() == ["one", "two"]
