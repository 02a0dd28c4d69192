"""Worker processes: routing, memory, imports, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing import connection
from pathlib import Path

import numpy as np
import pytest

from minding.engine.errors import EnvError
from minding.envs.backends import processes


def state_of(pid):
    """The letter for the state of a process: Z once it has ended, T while it is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def wait_for_end(pids, seconds=60.0):
    deadline = time.monotonic() + seconds
    while {*map(state_of, pids)} != {"Z"} and time.monotonic() < deadline:
        time.sleep(0.005)
    return {*map(state_of, pids)} == {"Z"}


def start_script(body):
    """Runs `body` as the main script of a fresh interpreter with this one's path."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n" + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_actions_reach_their_environment_under_random_delays(make):
    manager = make("Echo", 7, backend="subprocess", workers=3, rescale_action=False, env_kwargs={"delay": 0.003})
    rng = np.random.default_rng(0)
    obs = manager.reset()
    for _ in range(60):
        action = rng.integers(-500, 500, (7, 1)).astype(np.float32)
        step = manager.step(action)
        assert np.array_equal(step.next_obs[:, 2], action[:, 0])
        assert np.array_equal(step.next_obs[:, 0], obs[:, 0])
        assert np.array_equal(step.next_obs[:, 1], obs[:, 1] + 1)
        obs = step.obs


def test_workers_never_import_mindspore_and_stay_small(make):
    manager = make("Modules", 4, backend="subprocess", workers=2)
    assert manager.obs.tolist() == [[0.0, 0.0]] * 4
    for pid in manager.worker_pids:
        rss = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
        assert int(rss.split()[1]) <= 60 * 1024


def test_the_users_script_is_not_run_again_in_the_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os
        print("script runs", flush=True)
        import gymnasium, numpy as np
        from minding.envs import make_env_manager

        class Mine(gymnasium.Env):
            observation_space = gymnasium.spaces.Discrete(3)
            action_space = gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                return 1, {}
            def step(self, action):
                return 2, 1.0, False, False, {}

        manager = make_env_manager({"backend": "subprocess", "workers": 2}, 2, 0, env_fn=Mine)
        print(manager.step(np.zeros(2, int)).obs.tolist())
        """)
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("script runs\n[2, 2]\n", "")


def test_close_ends_the_workers_and_leaves_no_shared_memory(make):
    before = set(os.listdir("/dev/shm"))
    manager = make("Counter", 2, backend="subprocess", workers=2)
    manager.reset()
    pids = manager.worker_pids
    assert set(os.listdir("/dev/shm")) == before
    manager.close()
    assert wait_for_end(pids)


def test_a_script_that_closes_nothing_ends_with_its_workers():
    script = start_script("""
        import sys, weakref
        # From now on, what is finalized at the end is so after multiprocessing has waited for children.
        weakref.finalize(sys, lambda: None)
        from minding.envs import make_env_manager
        manager = make_env_manager(dict(env_id="worlds:Counter", backend="subprocess", workers=2), 2, 0)
        manager.reset()
        print(*manager.worker_pids)
        """)
    output, errors = script.communicate(timeout=30)
    assert (script.returncode, errors) == (0, "")
    assert len(output.split()) == 2
    assert wait_for_end([int(pid) for pid in output.split()])


@pytest.mark.parametrize(("kind", "stopped"), [("hang", False), ("none", True)])
def test_workers_end_when_the_parent_is_killed(kind, stopped):
    parent = start_script(f"""
        import numpy as np
        from minding.envs import make_env_manager
        cfg = dict(env_id="worlds:Faulty", backend="subprocess", workers=2)
        cfg["env_kwargs"] = dict(kind="{kind}", at=1)
        manager = make_env_manager(cfg, 2, 0)
        manager.reset()
        print(*manager.worker_pids, flush=True)
        while True:
            manager.step(np.zeros(2, int))
        """)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    if stopped:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    ended = wait_for_end(pids)
    for pid in [] if ended else pids:
        os.kill(pid, signal.SIGKILL)
    assert ended
    parent.stdout.close()
    parent.stderr.close()


@pytest.fixture
def dying(tmp_path, monkeypatch, make):
    """(number of deaths, signal) -> a manager of two environments in one worker, stepped once before any death. For a
    worker that is stopped, the time is up at once, and for any other never, however busy the machine is."""
    poll = connection.Connection.poll

    def start(deaths, how):
        def until_stopped(self, timeout):
            while not (ready := poll(self, 0.01)) and "T" not in map(state_of, manager.worker_pids):
                assert timeout == processes.START_TIMEOUT
            return ready

        monkeypatch.setattr(connection.Connection, "poll", until_stopped)
        kwargs = {"folder": str(tmp_path), "how": int(how)}
        manager = make("DiesAtFirst", backend="subprocess", env_kwargs=kwargs, workers=1, on_error="restart")
        manager.reset()
        manager.step(np.zeros(2, np.int64))
        for number in range(deaths):
            (tmp_path / str(number)).touch()
        os.kill(manager.worker_pids[0], signal.SIGKILL)
        return manager

    return start


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_new_worker_lost_before_its_first_answer_is_replaced(dying, how):
    manager = dying(2, how)
    lost = manager.step(np.zeros(2, np.int64))
    assert lost.valid.tolist() == [False, False]
    assert manager.fault_count == 3
    assert manager.step(np.zeros(2, np.int64)).valid is None


def test_workers_that_are_all_lost_end_the_run(dying):
    manager = dying(5, signal.SIGKILL)
    with pytest.raises(EnvError, match="it died with exit code -9; so did 3 new ones in a row"):
        manager.step(np.zeros(2, np.int64))
    assert manager.worker_pids == ()
