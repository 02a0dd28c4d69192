"""The checkpoints of a run in its folder, without a chain that says when they are due."""

import fcntl
import os
import shutil
import types

import numpy as np
import pytest
from fakes import Weights

from minding.engine import OnlineRLContext, Task
from minding.engine.checkpoint import list_checkpoints, read_manifest
from minding.engine.errors import CheckpointError, RunInUseError
from minding.engine.run.checkpoints import RunCheckpoints

CONFIG = {
    "env": {"env_id": "Line-v0", "spec": {"observation": {"shape": [1]}, "action": {"n": 2}}},
    "policy": {"type": "weights", "learn": {"learning_rate": 0.001}},
}


class Run:
    """A task at some gradient step, and the checkpoints of its run."""

    def __init__(self, folder):
        self.task, self.weights = Task(), Weights(CONFIG)
        self.task.start(ctx=OnlineRLContext())
        self.checkpoints = RunCheckpoints(folder, self.weights, self.task)

    def save(self, train_iter, keep_last=9):
        self.task.ctx.train_iter, self.task.ctx.env_step = train_iter, 10 * train_iter
        self.weights.value[:] = train_iter
        return self.checkpoints.save(None, keep_last)

    def names(self):
        return [path.name for path in list_checkpoints(self.checkpoints.folder)]


@pytest.fixture
def start(tmp_path):
    """Begins a run in the folder ``run``; its lock is released at the end of the test."""
    runs = []

    def begin():
        run = Run(tmp_path / "run")
        runs.append(run)
        run.checkpoints.open()
        return run

    yield begin
    for run in runs:
        run.checkpoints.close()


def test_a_checkpoint_is_named_by_its_gradient_step(start):
    run = start()
    assert [run.save(step, keep_last=2).name for step in (5, 10, 15)] == ["iter_5", "iter_10", "iter_15"]
    assert run.names() == ["iter_10", "iter_15"]
    manifest = read_manifest(run.checkpoints.folder / "iter_15")
    assert (manifest["train_iter"], manifest["env_step"], manifest["unit"]) == (15, 150, "env_step")
    run = start()
    assert "processors" not in read_manifest(run.save(1))
    run.task._chain.lanes = types.SimpleNamespace(nodes=[], division={"lanes.collectors": 3}, processors=("A", "B"))
    manifest = read_manifest(run.save(2))
    assert (manifest["processors"], manifest["identity"]["lanes.collectors"]) == (["A", "B"], 3)


def test_the_newest_or_named_checkpoint_is_restored(start, tmp_path):
    run = start()
    for step in (5, 10, 20):
        run.save(step)
    for request, step in [("latest", 20), (tmp_path / "run", 20), (run.checkpoints.folder / "iter_5", 5)]:
        other = Run(tmp_path / "other" if request != "latest" else tmp_path / "run")
        found = other.checkpoints.restore(request)
        assert (other.weights.value.tolist(), other.task.ctx.env_step, found.path.name) == (
            [step],
            10 * step,
            f"iter_{step}",
        )
    # `restore` leaves the folder as it is, `resume` sets aside what came later.
    assert run.names() == ["iter_5", "iter_10", "iter_20"]
    run.checkpoints.resume(run.checkpoints.folder / "iter_10")
    assert run.names() == ["iter_5", "iter_10"]
    assert len(list(run.checkpoints.folder.glob("left-*-iter_20"))) == 1


def test_the_best_can_have_other_weights_than_the_current_ones(start, tmp_path):
    run = start()
    run.save(5)
    assert run.checkpoints.save_best(3.0, {"net.w": np.array([4.0])}).name == "best"
    best = Run(run.checkpoints.folder.parent)
    best.checkpoints.restore(run.checkpoints.folder / "best")
    assert (best.weights.value.tolist(), run.weights.value.tolist()) == ([4.0], [5.0])
    with pytest.raises(CheckpointError, match="no folder 'absent'; name a checkpoint, a run folder, or 'latest'"):
        start().checkpoints.restore("absent")


def test_a_new_run_sets_an_earlier_runs_checkpoints_aside(start, tmp_path):
    earlier = start()
    earlier.save(5)
    earlier.checkpoints.close()
    owner = Run(tmp_path / "run")
    owner.task.ctx.train_iter = 5
    owner.checkpoints.own()
    owner.checkpoints.open()
    assert owner.names() == ["iter_5"]
    owner.checkpoints.close()
    assert start().names() == []
    assert len(list((tmp_path / "run").glob("left-*-ckpt"))) == 1


def test_the_folder_belongs_to_one_process_until_it_is_closed(start, tmp_path):
    run = start()
    run.save(5)
    with open(tmp_path / "run" / ".lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run.checkpoints.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(RunInUseError, match="is in use by process"):
            run.checkpoints.open()


def test_a_folder_that_was_removed_is_made_and_locked_again_once(start, tmp_path, caplog):
    run = start()
    assert not run.checkpoints.renew_if_lost()
    shutil.rmtree(tmp_path / "run")
    assert (run.checkpoints.renew_if_lost(), run.checkpoints.renew_if_lost()) == (True, False)
    assert run.checkpoints.folder_lost
    assert caplog.text.count("was removed or renamed") == 1
    assert (tmp_path / "run" / "config.yaml").is_file()
    assert run.save(5).is_dir()


def test_a_failed_save_is_reported_and_nan_is_not_saved(start, monkeypatch, caplog):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    run = start()
    run.save(5)
    monkeypatch.setattr(os, "fsync", full)
    assert run.save(10, keep_last=1) is None
    assert run.names() == ["iter_5"]
    assert "iter_10 was not written ([Errno 28] No space left on device); training continues" in caplog.text
    run = start()
    run.weights.value[:] = np.nan
    assert run.checkpoints.save(None, 3) is None
    assert "policy/params/net.w is NaN or infinite" in caplog.text
