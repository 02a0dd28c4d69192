"""Exceptions, hangs, deaths, NaN and wrong shapes: named, and raised or survived."""

import os
import signal
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
from worlds import Counter

from minding.engine.errors import EnvError
from minding.envs import describe_env, make_env_manager
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


def test_a_reset_of_the_old_form_is_told_what_is_expected():
    class Old(Counter):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0]

    with pytest.raises(EnvError, match=r"expected \(observation, info\), got ndarray"):
        make_env_manager({}, 1, 0, env_fn=Old).reset()


def test_a_hang_names_the_environment_after_the_timeout(make):
    faults = {"kind": "hang", "at": 2}
    manager = make("Faulty", 2, backend="subprocess", workers=1, step_timeout=0.5, env_kwargs=faults)
    manager.reset()
    manager.step(np.zeros(2, np.int64))
    with pytest.raises(EnvError, match=r"environment 0 .*, step 2 .*: it did not answer within 0.5 s"):
        manager.step(np.zeros(2, np.int64))
    assert manager.worker_pids == ()


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


def test_an_environment_that_cannot_be_made_in_a_worker_says_why():
    parent = os.getpid()

    class OnlyHere(Counter):
        def __init__(self):
            if os.getpid() != parent:
                raise PermissionError("display not found")
            super().__init__()

    manager = make_env_manager({"backend": "subprocess"}, 1, 0, env_fn=OnlyHere)
    with pytest.raises(EnvError, match="OnlyHere cannot be made: PermissionError: display not found"):
        manager.reset()


def persistent(make, backend, kind, num_envs=1, **env):
    """Environments that fail at the first step of every episode."""
    faults = {"kind": kind, "at": 1}
    return make("Faulty", num_envs, backend=backend, workers=1, on_error="restart", env_kwargs=faults, **env)


def test_faults_in_every_step_end_the_run_despite_restart(make):
    manager = persistent(make, "sync", "raise", 2)
    with pytest.raises(EnvError, match=r"environment 0 .*motor stalled .*; it failed in 10 steps in a row"):
        run(manager, 100)
    assert manager.fault_count == 2 * 9


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


class Unclosable(Counter):
    def close(self):
        raise OSError("device busy")


class HangsInClose(Counter):
    def close(self):
        threading.Event().wait()


class DiesInClose(Counter):
    def close(self):
        os._exit(7)


def test_environments_that_fail_in_close_are_named(caplog):
    manager = make_env_manager({}, 2, 0, env_fn=Unclosable)
    manager.reset()
    caplog.clear()
    manager.close()
    assert [message.partition(" (/")[0] for message in caplog.messages] == [
        f"environment {row} (Unclosable) failed in close: OSError: device busy" for row in (0, 1)
    ]
    assert "test_faults.py" in caplog.text


class EndsInClose(Counter):
    def close(self):
        sys.exit(3)


def test_a_probed_environment_may_not_hang_or_exit_in_close(caplog):
    describe_env({"step_timeout": 0.3}, env_fn=HangsInClose)
    assert "HangsInClose failed in close: close() did not return within 0.3 s (env.step_timeout)" in caplog.text
    describe_env({}, env_fn=EndsInClose)
    assert "EndsInClose failed in close: SystemExit: 3" in caplog.text


def test_instances_with_other_actions_are_refused():
    sizes = iter(range(2, 9))

    class Growing(Counter):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(next(sizes))

    with pytest.raises(EnvError, match=r"the same action space; the first has Discrete\(2\), another has"):
        make_env_manager({"backend": "sync"}, 2, 0, env_fn=Growing)


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


def test_an_environment_not_made_a_second_time_says_why():
    made = []

    class Licensed(Counter):
        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) > 2:
                raise PermissionError("one license only")

        def reset(self, *, seed=None, options=None):
            if hasattr(self, "start"):
                raise RuntimeError("worn out")
            return super().reset(seed=seed)

    manager = make_env_manager({"on_error": "restart"}, 1, 0, env_fn=Licensed)
    with pytest.raises(EnvError, match=r"environment 0 \(Licensed\).*a new one was needed: Licensed cannot be made"):
        run(manager, 100)


def test_workers_leave_a_terminate_to_their_parent(make):
    manager = make("Counter", 2, backend="subprocess", workers=2)
    manager.reset()
    pids = manager.worker_pids
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    for _ in range(20):
        manager.step(np.zeros(2, np.int64))
    assert (manager.worker_pids, manager.fault_count) == (pids, 0)
