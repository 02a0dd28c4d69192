"""What a command prints reaches the user whatever an environment does to the standard streams."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minding.engine.console import own_streams, stdout
from minding.engine.run.progress import Progress, Status
from minding.envs.games.boards.tic_tac_toe import TicTacToe

ZOO = Path(__file__).parents[2] / "zoo"
MUTE = """
import contextlib, io, sys
from gymnasium.envs.classic_control import CartPoleEnv

def replace():
    sys.stdout, sys.stderr = io.StringIO(), None

def close():
    sys.stdout.close()
    sys.stderr.close()

def wrap():
    # The stream around the buffer is deleted at once, and closes the buffer.
    io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")

def detach():
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")

class Mute(CartPoleEnv):
    def __init__(self, how="replace", render_mode=None):
        super().__init__(render_mode=render_mode)
        globals()[how]()

    def reset(self, **options):
        print("of the environment")
        self.left = 9
        return super().reset(**options)

    def step(self, action):
        self.left -= 1
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, not self.left, info
"""


@pytest.fixture
def mute(tmp_path, monkeypatch):
    """The name of an environment that replaces both streams when it is created."""
    (tmp_path / "mute_world.py").write_text(MUTE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "mute_world:Mute"
    sys.modules.pop("mute_world", None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["eval", ZOO / "cartpole_ppo", "--episodes", "1"], "return"),
        (["record", ZOO / "cartpole_ppo", "--out", "episode.gif"], "episode.gif"),
        (["data", "record", "--random", "--steps", "20", "--out", "data"], "20 steps"),
    ],
)
def test_results_are_printed_if_an_environment_takes_the_output(arguments, text, mute, printed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = printed(*arguments, "--env", mute)
    assert text in out
    assert "of the environment" not in out


def test_a_game_is_played_whose_rules_take_the_output(printed, monkeypatch):
    initial = TicTacToe.initial

    def muting(self, n):
        sys.stdout = io.StringIO()
        return initial(self, n)

    monkeypatch.setattr(TicTacToe, "initial", muting)
    out = printed("play", ZOO / "tictactoe_alphazero", "--opponent", "random", "--simulations", "0")
    assert out.count("0 1 2") > 5, out


@pytest.mark.parametrize("how", ["replace", "close", "wrap", "detach"])
def test_the_streams_of_a_process_stay_open(how, mute, tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "minding", "check-env", mute, f"env.env_kwargs.how={how}", "--steps", "50"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mute_world:Mute" in done.stdout


def test_progress_is_drawn_on_the_output_of_the_command(capsys):
    with own_streams():
        sys.stdout = io.StringIO()
        progress = Progress(100, "run")
        progress.update(Status(50, 1))
        progress.close()
    assert capsys.readouterr().out.startswith("run 50/100 (50%)")


def test_what_a_bar_of_rich_takes_is_printed_above_the_bar():
    from rich.console import Console
    from rich.file_proxy import FileProxy

    with own_streams():
        own = sys.stdout
        sys.stdout = FileProxy(Console(), own)
        assert stdout() is sys.stdout
        sys.stdout = FileProxy(Console(), io.StringIO())
        assert stdout() is own
    assert sys.stdout is own
