"""Exceptions, hangs, deaths, NaN and wrong shapes: named, and raised or survived."""

import os
import signal

import numpy as np
import pytest
from worlds import Counter

from minding.engine.errors import EnvError
from minding.envs import make_env_manager

KINDS = {
    "raise": "RuntimeError: motor stalled",
    "nan": r"observation is \[nan nan\]",
    "reward": "reward is inf",
    "shape": r"expected shape \(2,\), got \(1,\)",
    "dtype": "expected dtype float32, got complex",
}
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
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_names_environment_step_and_value(make, backend, kind):
    manager = make("Faulty", 3, backend=backend, workers=1, env_kwargs={"kind": kind, "at": 3})
    manager.reset()
    manager.step(ZEROS)
    manager.step(ZEROS)
    with pytest.raises(
        EnvError, match=rf"environment 0 \(worlds:Faulty\), step 3 of its episode: .*{KINDS[kind]}"
    ):
        manager.step(ZEROS)


@pytest.mark.parametrize("backend", ["sync", "subprocess"])
@pytest.mark.parametrize("kind", ["raise", "nan", "shape"])
def test_with_restart_a_fault_costs_one_row_and_begins_a_new_episode(make, caplog, backend, kind):
    faults = {"kind": kind, "at": 3, "share": 0.5}
    manager = make("Faulty", 3, backend=backend, workers=1, on_error="restart", env_kwargs=faults)
    invalid = run(manager, 60)
    assert invalid > 3
    assert manager.fault_count == invalid
    assert caplog.text.count("restarted after a fault") == 1


def test_an_environment_that_never_resets_ends_the_run_in_spite_of_restart():
    class Broken:
        def __init__(self, first):
            self.inner = Counter()
            self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space

        def reset(self, *, seed=None, options=None):
            raise OSError("no licence")

        def close(self):
            pass

    manager = make_env_manager({"on_error": "restart", "env_kwargs": {"first": 1}}, 1, 0, env_fn=Broken)
    with pytest.raises(EnvError, match=r"environment 0 .* failed in reset: OSError: no licence"):
        manager.reset()


def test_an_environment_that_cannot_reset_any_more_is_replaced_by_a_new_one():
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


def test_a_hang_is_an_error_that_names_the_environment_after_the_timeout(make):
    faults = {"kind": "hang", "at": 2}
    manager = make("Faulty", 2, backend="subprocess", workers=1, step_timeout=0.5, env_kwargs=faults)
    manager.reset()
    manager.step(np.zeros(2, np.int64))
    with pytest.raises(EnvError, match=r"did not answer within 0.5 s; it was at environment 0, step 2"):
        manager.step(np.zeros(2, np.int64))
    assert manager.worker_pids == ()


def test_a_hang_is_survived_by_a_new_worker(make):
    faults = {"kind": "hang", "at": 3, "share": 0.3}
    manager = make(
        "Faulty",
        2,
        2,
        backend="subprocess",
        workers=2,
        step_timeout=0.5,
        on_error="restart",
        env_kwargs=faults,
    )
    run(manager, 12)
    assert manager.fault_count > 0


def test_a_worker_that_exits_is_an_error_with_its_exit_code(make):
    faults = {"kind": "die", "at": 1}
    manager = make("Faulty", 2, backend="subprocess", workers=1, env_kwargs=faults)
    manager.reset()
    with pytest.raises(EnvError, match="died with exit code 3; it was at environment 0, step 1"):
        manager.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_a_worker_killed_between_steps_is_found_at_once(make, on_error):
    manager = make("Faulty", 4, backend="subprocess", workers=2, on_error=on_error, env_kwargs={"at": -1})
    run(manager, 3)
    killed = manager.worker_pids[1]
    os.kill(killed, signal.SIGKILL)
    if on_error == "raise":
        with pytest.raises(EnvError, match=rf"pid {killed}, environments 2 to 3 .* died with exit code -9"):
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
    with pytest.raises(
        EnvError, match="OnlyHere cannot be made in a worker: PermissionError: display not found"
    ):
        manager.reset()
