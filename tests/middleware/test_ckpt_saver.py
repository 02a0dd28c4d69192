"""Checkpoints during and at the end of a run."""

import logging
import os
import signal

import numpy as np
import pytest

from minding.engine import Task
from minding.engine.checkpoint import list_checkpoints, load_checkpoint, read_manifest
from minding.engine.context import OnlineRLContext
from minding.engine.errors import CheckpointError, ConfigError
from minding.middleware import CkptSaver
from minding.middleware.ckpt_saver import newest_checkpoint


class Weights:
    """A policy that is one number, the gradient steps made."""

    def __init__(self):
        self.value = np.zeros(1)

    def state_dict(self):
        return {"value": self.value.copy()}

    def load_state_dict(self, state):
        self.value = state["value"]


class Learner:
    """Makes ten gradient steps an iteration."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, ctx):
        ctx.train_iter += 10
        ctx.env_step += 100
        self.weights.value += 10.0


@pytest.fixture
def run(tmp_path):
    """Runs a learner, the saver and more middleware; returns the checkpoint folder and the saver."""

    def start(*others, max_step=5, saver_first=False, weights=None, **options):
        weights = weights or Weights()
        task = Task()
        with task.start(ctx=OnlineRLContext()):
            saver = CkptSaver(weights, "run", **{"train_freq": 20, **options}, out_dir=tmp_path, task=task)
            chain = [Learner(weights), *(other(task) for other in others)]
            for middleware in [saver, *chain] if saver_first else [*chain, saver]:
                task.use(middleware)
            task.run(max_step=max_step)
        return saver

    return start


def names(folder):
    return [path.name for path in list_checkpoints(folder)]


def at_iteration(number, action):
    """Middleware that acts in one iteration."""
    return lambda task: lambda ctx: action(task, ctx) if ctx.total_step == number else None


def test_it_saves_every_train_freq_gradient_steps_and_at_the_end(run):
    saver = run(keep_last=10)
    assert names(saver.folder) == ["iter_20", "iter_40", "iter_50"]
    state, manifest = load_checkpoint(saver.folder / "iter_40")
    assert state["policy"]["value"].tolist() == [40.0]
    assert state["task"]["ctx"]["train_iter"] == 40
    assert (manifest["train_iter"], manifest["env_step"], manifest["eval_value"]) == (40, 400, None)


def test_the_end_is_not_saved_twice(run):
    saver = run(max_step=4)
    assert names(saver.folder) == ["iter_20", "iter_40"]


def test_only_the_last_ones_stay(run):
    assert names(run(max_step=9, keep_last=2).folder) == ["iter_80", "iter_90"]


def test_without_a_frequency_only_the_end_is_saved_and_without_final_nothing(run):
    assert names(run(train_freq=None).folder) == ["iter_50"]
    assert not run(train_freq=None, final=False, max_step=3).folder.joinpath("iter_30").exists()


@pytest.mark.parametrize("saver_first", [False, True])
@pytest.mark.parametrize("end", ["max_step", "finish", "exception", "SIGINT", "SIGTERM"])
def test_the_last_state_is_saved_however_the_run_ends_and_wherever_the_saver_stands(run, tmp_path, end, saver_first):
    def stop(task, ctx):
        if end == "finish":
            task.finish = True
        elif end == "exception":
            raise RuntimeError("broken")
        elif end != "max_step":
            os.kill(os.getpid(), signal.Signals[end])

    options = {"max_step": 3 if end == "max_step" else 50, "saver_first": saver_first, "train_freq": None}
    if end == "exception":
        with pytest.raises(RuntimeError, match="broken"):
            run(at_iteration(2, stop), **options)
    else:
        run(at_iteration(2, stop), **options)
    assert names(tmp_path / "run" / "ckpt") == ["iter_30"]
    state, _ = load_checkpoint(tmp_path / "run" / "ckpt" / "iter_30")
    assert state["policy"]["value"].tolist() == [30.0]


def evaluate(*values):
    """Middleware that evaluates to these values in the first iterations."""

    def make(task):
        def set_value(ctx):
            ctx.eval_value = values[ctx.total_step] if ctx.total_step < len(values) else None

        return set_value

    return make


def test_the_best_evaluation_is_kept_beside_the_others(run):
    saver = run(evaluate(1.0, 3.0, 2.0, None, float("nan")), keep_last=1)
    state, manifest = load_checkpoint(saver.folder / "best")
    assert (state["policy"]["value"].tolist(), manifest["eval_value"], saver.best) == ([20.0], 3.0, 3.0)
    assert names(saver.folder) == ["iter_50"]
    assert sorted(p.name for p in saver.folder.iterdir()) == ["best", "iter_50"]


def test_the_best_is_not_kept_when_not_asked_for(run):
    assert not (run(evaluate(1.0), keep_best=False).folder / "best").exists()


def test_counters_go_on_from_a_saved_state(run, tmp_path):
    saver = run(evaluate(3.0))
    state, _ = load_checkpoint(saver.folder / "iter_40")
    weights, task = Weights(), Task()
    with task.start(ctx=OnlineRLContext()):
        resumed = CkptSaver(weights, "run", 20, out_dir=tmp_path, task=task)
        task.use(Learner(weights)).use(lambda ctx: None).use(resumed)
        task.load_state_dict(state["task"])
        assert (resumed.best, task.ctx.train_iter) == (3.0, 40)
        task.run(max_step=task.ctx.total_step + 2)
    # The next one is due 20 gradient steps after the one resumed from.
    assert names(saver.folder) == ["iter_40", "iter_50", "iter_60"]


def test_a_full_disk_leaves_earlier_checkpoints_and_training_goes_on(run, monkeypatch, caplog):
    real = os.fsync

    def fill(task, ctx):
        monkeypatch.setattr(os, "fsync", full)

    def free(task, ctx):
        monkeypatch.setattr(os, "fsync", real)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with caplog.at_level(logging.WARNING, "minding.ckpt"):
        saver = run(at_iteration(2, fill), at_iteration(4, free), max_step=6, keep_last=5)
    assert names(saver.folder) == ["iter_20", "iter_60"]
    (record,) = caplog.records
    assert "iter_40 was not written" in record.message
    assert "No space left on device); training goes on, earlier checkpoints stay" in record.message
    assert sorted(p.name for p in saver.folder.iterdir()) == ["iter_20", "iter_60"]


def test_a_failed_last_save_is_tried_again_at_the_end(run, monkeypatch):
    calls = []
    real = os.rename

    def fail_once(source, target):
        calls.append(target.name)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "rename", fail_once)
    saver = run(max_step=4)
    assert calls == ["iter_20", "iter_40", "iter_40"]
    assert names(saver.folder) == ["iter_20", "iter_40"]


def test_checkpoints_of_an_earlier_run_in_the_folder_do_not_crowd_out_new_ones(run):
    run(max_step=8)
    saver = run(max_step=4, keep_last=2)
    assert names(saver.folder) == ["iter_20", "iter_40", "iter_60", "iter_80"]


def test_the_newest_whole_checkpoint_is_found_and_damaged_ones_are_named(run, caplog):
    saver = run(keep_last=5)
    assert newest_checkpoint(saver.folder).name == "iter_50"
    (saver.folder / "iter_50" / "manifest.json").write_text("{")
    with caplog.at_level(logging.WARNING, "minding.ckpt"):
        assert newest_checkpoint(saver.folder).name == "iter_40"
    assert "skipped damaged checkpoint" in caplog.text
    assert "iter_50" in caplog.text


def test_no_checkpoint_at_all_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint; train first, or name another run"):
        newest_checkpoint(tmp_path)


def test_keeping_none_is_refused():
    with pytest.raises(ConfigError, match="keep_last=0"):
        CkptSaver(Weights(), "run", keep_last=0)


def test_its_manifest_can_be_read_alone(run):
    assert read_manifest(run().folder / "iter_50")["train_iter"] == 50


def test_a_policy_with_nan_weights_is_not_saved(tmp_path):
    class Broken:
        def state_dict(self):
            return {"params": {"net.weight": np.array([1.0, np.nan], np.float32)}}

    task = Task()
    saver = CkptSaver(Broken(), "run", 10, out_dir=tmp_path, task=task)
    with task.start():
        task.use(saver)
        saver(OnlineRLContext(train_iter=10))
    assert not (tmp_path / "run" / "ckpt").exists()
