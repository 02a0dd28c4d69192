"""Environments that hang in this process: named while they are waited for, and an error at the limit."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from worlds import Counter

from minding.engine.errors import EnvError
from minding.engine.process.signals import SignalGuard
from minding.envs import make_env_manager

HANGS = {"kind": "hang", "at": 2}
ZEROS = np.zeros(2, np.int64)
PLACE = r"\(.*worlds.py:\d+ in step\)"


@pytest.fixture
def hanging(make):
    def make_hanging(**env):
        manager = make("Faulty", 2, env_kwargs={**HANGS, **env.pop("faults", {})}, step_timeout=0.3, **env)
        manager.reset()
        manager.step(ZEROS)
        return manager

    return make_hanging


def test_a_hang_in_this_process_names_call_and_line(hanging, caplog):
    manager = hanging()
    with pytest.raises(
        EnvError, match=rf"environment 0 \(worlds:Faulty\), step 2 .*: step\(\) did not return within 0.3 s .*{PLACE}"
    ):
        manager.step(ZEROS)
    assert "waiting for environment 0 (worlds:Faulty), step 2 of its episode: step() has been" in caplog.text
    assert "worlds.py" in caplog.text


def test_a_hang_in_this_process_is_survived_by_a_new_environment(hanging):
    manager = hanging(on_error="restart", faults={"share": 0.3})
    valid = [manager.step(ZEROS).valid for _ in range(12)]
    assert 0 < manager.fault_count == sum(int((~rows).sum()) for rows in valid if rows is not None)


class Stuck(Counter):
    """Hangs in `where`; what it is told to catch does not save it."""

    def __init__(self, where="reset"):
        self.where = where
        self.hang("__init__")
        super().__init__()

    def reset(self, *, seed=None, options=None):
        self.hang("reset")
        return super().reset(seed=seed)

    def hang(self, where):
        while where == self.where:
            try:
                while True:
                    time.sleep(0.01)
            except Exception:
                continue


def test_hangs_while_an_environment_is_made_are_found(monkeypatch):
    monkeypatch.setattr("minding.envs.single.factory.START_TIMEOUT", 0.2)
    with pytest.raises(EnvError, match=r"Stuck cannot be made: __init__\(\) did not return within 0.2 s"):
        make_env_manager({"step_timeout": 0.1, "env_kwargs": {"where": "__init__"}}, 1, 0, env_fn=Stuck)


def test_a_signal_during_a_hang_is_still_the_guards(hanging):
    seen = []
    manager = hanging()
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    with SignalGuard(seen.append):
        timer.start()
        with pytest.raises(EnvError, match="did not return"):
            manager.step(ZEROS)
    assert seen == ["SIGINT"]


COMPILED = """
import ctypes, sys, time
import numpy as np
sys.path[:0] = {folders!r}
from worlds import Counter
from minding.envs import make_env_manager
from minding.envs.guards import watchdog
watchdog.GRACE = 0.2

class Compiled(Counter):
    def step(self, action):
        libc, end = ctypes.CDLL(None), time.time() + 60
        try:
            while time.time() < end:  # as code that takes no notice of signals
                libc.sleep(5)
        except BaseException:
            self.step(action)

manager = make_env_manager({{"step_timeout": 0.2}}, 1, 0, env_fn=Compiled)
manager.step(np.zeros(1, np.int64))
"""


def test_a_call_that_cannot_be_interrupted_is_exit_code_1():
    script = COMPILED.format(folders=[str(folder) for folder in Path(__file__).parents[1:3]])
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "environment 0 (Compiled), step 1 of its episode: step() did not return" in done.stderr
    assert "cannot be interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < 10


def test_each_environment_of_a_worker_has_its_own_time(make, monkeypatch, caplog):
    monkeypatch.setattr("minding.envs.backends.processes.WARN_AFTER", 0.1)
    manager = make("Slowpoke", 3, backend="subprocess", workers=1, step_timeout=0.6, env_kwargs={"seconds": 0.35})
    manager.reset()
    manager.step(np.zeros(3, np.int64))
    assert "waiting for environment 0 (worlds:Slowpoke), step 1 of its episode, in worker process 0" in caplog.text
