"""What a user sees on the command line when an environment of theirs is at fault."""

import pytest

from minding.cli import run

ENV = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    def __init__(self, length=10, bad=False):
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        if bad:
            raise OSError("no such map")
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}
    def step(self, action):
        return self.move(action)
    def move(self, action):
        return [][action]
"""


@pytest.fixture(autouse=True)
def corridor(tmp_path, monkeypatch):
    (tmp_path / "corridor.py").write_text(ENV)
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_an_environment_that_cannot_be_made_names_its_line(capsys):
    assert run(["check-env", "corridor:Corridor", "env.env_kwargs.bad=true"]) == 1
    error = capsys.readouterr().err
    assert "corridor:Corridor cannot be made: OSError: no such map (" in error
    assert "corridor.py:10 in __init__)" in error
