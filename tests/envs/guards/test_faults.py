"""Exceptions, hangs, deaths, NaN and wrong shapes: named, and raised or survived."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from worlds import Counter

from minding.engine.errors import EnvError
from minding.envs import make_env_manager
from minding.envs.guards.faults import FaultStreak

ZEROS = np.zeros(3, np.int64)


def run(manager, steps):
    """Checks that valid rows are true transitions; returns the number of rows that were not valid."""
    obs, invalid = manager.obs, 0
    for _ in range(steps):
        step = manager.step(np.zeros(manager.num_envs, np.int64))
        valid = np.ones(manager.num_envs, bool) if step.valid is None else step.valid
        delta = step.next_obs - obs
        assert not delta[valid, 0].any()
        assert (delta[valid, 1] == 1).all()
        assert not step.obs[~valid, 1].any()
        assert not step.reward[~valid].any()
        assert not (step.terminated | step.truncated)[~valid].any()
        assert np.isfinite(step.obs).all()
        assert all(end.episode_length == 6 for end in step.episodes)
        invalid += int((~valid).sum())
        obs = step.obs
    return invalid


@pytest.mark.parametrize("backend", ["sync", "subprocess"])
def test_a_fault_names_environment_step_and_value(make, backend):
    manager = make("Faulty", 3, backend=backend, workers=1, env_kwargs={"kind": "raise", "at": 3})
    manager.reset()
    manager.step(ZEROS)
    manager.step(ZEROS)
    with pytest.raises(EnvError, match=r"environment 0 \(worlds:Faulty\), step 3 of its episode: .*motor stalled"):
        manager.step(ZEROS)


@pytest.mark.parametrize(("kind", "backend"), [("raise", "sync"), ("shape", "sync"), ("nan", "subprocess")])
def test_with_restart_a_fault_costs_one_row(make, caplog, backend, kind):
    faults = {"kind": kind, "at": 3, "share": 0.5}
    manager = make("Faulty", 3, backend=backend, workers=1, on_error="restart", env_kwargs=faults)
    invalid = run(manager, 60)
    assert invalid > 3
    assert manager.fault_count == invalid
    assert caplog.text.count("restarted after a fault") == 1


def test_an_environment_that_cannot_reset_is_replaced():
    class Worn(Counter):
        resets = 0

        def reset(self, *, seed=None, options=None):
            self.resets += 1
            if self.resets > 2:
                raise RuntimeError("worn out")
            return super().reset(seed=seed)

    manager = make_env_manager({"on_error": "restart"}, 1, 0, env_fn=Worn)
    manager.reset()
    ends = [end for _ in range(100) for end in manager.step(np.zeros(1, np.int64)).episodes]
    assert len(ends) > 16
    assert manager.fault_count == len(ends) // 2
    manager.close()


def test_a_hang_is_survived_by_a_new_worker(make):
    faults = {"kind": "hang", "at": 3, "share": 0.3}
    manager = make(
        "Faulty", 2, 2, backend="subprocess", workers=2, step_timeout=0.5, on_error="restart", env_kwargs=faults
    )
    run(manager, 12)
    assert manager.fault_count > 0


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_a_worker_killed_between_steps_is_found_at_once(make, on_error):
    manager = make("Faulty", 4, backend="subprocess", workers=2, on_error=on_error, env_kwargs={"at": -1})
    run(manager, 3)
    killed = manager.worker_pids[1]
    os.kill(killed, signal.SIGKILL)
    if on_error == "raise":
        with pytest.raises(EnvError, match=rf"pid {killed}, environments 2 to 3.: it died with exit code -9"):
            manager.step(np.zeros(4, np.int64))
        return
    step = manager.step(np.zeros(4, np.int64))
    assert step.valid.tolist() == [True, True, False, False]
    assert step.obs[:, 1].tolist() == [4.0, 4.0, 0.0, 0.0]
    assert run(manager, 20) == 0
    assert manager.fault_count == 1


def persistent(make, backend, kind, num_envs=1, **env):
    """Environments that fail at the first step of every episode."""
    faults = {"kind": kind, "at": 1}
    return make("Faulty", num_envs, backend=backend, workers=1, on_error="restart", env_kwargs=faults, **env)


def test_deaths_in_every_step_end_the_run_despite_restart(make, monkeypatch):
    monkeypatch.setattr(FaultStreak, "limit", 3)
    manager = persistent(make, "subprocess", "die")
    with pytest.raises(EnvError, match=r"died with exit code 3; .* lost in 3 steps in a row"):
        run(manager, 100)
    assert manager.fault_count == 2
    assert manager.worker_pids == ()


def test_one_transition_between_two_faults_is_enough_to_go_on(make):
    manager = make("Faulty", 1, on_error="restart", env_kwargs={"kind": "raise", "at": 2})
    valid = [manager.step(np.zeros(1, np.int64)).valid is None for _ in range(60)]
    assert valid == [True, False] * 30


class HangsInClose(Counter):
    def close(self):
        threading.Event().wait()


class DiesInClose(Counter):
    def close(self):
        os._exit(7)


@pytest.mark.parametrize("world", [pytest.param(HangsInClose, marks=pytest.mark.slow), DiesInClose])
def test_a_worker_that_hangs_in_close_ends_within_its_time(world):
    manager = make_env_manager({"backend": "subprocess", "workers": 1}, 1, 0, env_fn=OnlyInWorkers(world))
    manager.reset()
    pids = manager.worker_pids
    start = time.monotonic()
    manager.close()
    assert time.monotonic() - start < 6.0
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


class OnlyInWorkers:
    """Makes `world` in worker processes, and a `Counter` here, where its spaces are looked up."""

    def __init__(self, world):
        self.world, self.parent = world, os.getpid()

    def __call__(self):
        return Counter() if os.getpid() == self.parent else self.world()
