"""Checkpoints during and at the end of a run."""

import contextlib
import copy
import datetime
import logging
import os
import signal

import numpy as np
import pytest
from fakes import Weights

from minding.engine import Config, OnlineRLContext, Task
from minding.engine.checkpoint import list_checkpoints, load_checkpoint, read_manifest
from minding.engine.errors import CheckpointError, LearnerError
from minding.engine.run import checkpoints
from minding.engine.run.checkpoints import library_versions
from minding.middleware import CkptSaver

CONFIG = {
    "exp_name": "run",
    "run": {"max_env_step": 1000, "out_dir": "runs"},
    "env": {"env_id": "Line-v0", "spec": {"observation": {"shape": [1]}, "action": {"n": 2}}},
    "policy": {"type": "weights", "model": {"hidden": [8]}, "learn": {"learning_rate": 0.001}},
}


def policy(**overrides):
    """One of `CONFIG` with values in place of those at dotted paths (dots as double underscores)."""
    changed = Config(copy.deepcopy(CONFIG))
    for path, value in overrides.items():
        *sections, key = path.split("__")
        node = changed
        for section in sections:
            node = node[section]
        node[key] = value
    return Weights(changed)


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
        weights = weights or policy()
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
    assert state["policy"]["params"]["net.w"].tolist() == [40.0]
    assert state["task"]["ctx"]["train_iter"] == 40
    assert (manifest["train_iter"], manifest["env_step"], manifest["eval_value"]) == (40, 400, None)


def test_without_a_folder_it_saves_where_the_configuration_says(tmp_path):
    weights = policy(run__out_dir=str(tmp_path / "elsewhere"))
    assert CkptSaver(weights, "run", task=Task()).folder == tmp_path / "elsewhere" / "run" / "ckpt"


def test_each_checkpoint_that_was_written_is_told(run, monkeypatch):
    written = []

    def listen(task):
        task.on("checkpoint", lambda path: written.append((path.name, path.is_dir(), task.ctx.train_iter)))
        return lambda ctx: setattr(ctx, "eval_value", float(ctx.total_step == 1))

    run(listen, train_freq=20, max_step=3)
    assert written == [("best", True, 10), ("best", True, 20), ("iter_20", True, 20), ("iter_30", True, 30)]


def test_without_a_frequency_only_the_end_is_saved(run):
    assert names(run(train_freq=None).folder) == ["iter_50"]
    assert not run(train_freq=None, final=False, max_step=3).folder.joinpath("iter_30").exists()


@pytest.mark.parametrize("saver_first", [False, True])
@pytest.mark.parametrize("end", ["max_step", "finish", "exception", "SIGINT", "SIGTERM"])
def test_the_last_state_is_saved_however_the_run_ends(run, tmp_path, end, saver_first):
    def stop(task, ctx):
        if end == "finish":
            task.finish = True
        elif end == "exception":
            raise RuntimeError("broken")
        elif end != "max_step":
            os.kill(os.getpid(), signal.Signals[end])

    options = {"max_step": 3 if end == "max_step" else 50, "saver_first": saver_first, "train_freq": None}
    raised = {"exception": RuntimeError, "SIGINT": KeyboardInterrupt, "SIGTERM": SystemExit}.get(end)
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        run(at_iteration(2, stop), **options)
    assert names(tmp_path / "run" / "ckpt") == ["iter_30"]
    state, manifest = load_checkpoint(tmp_path / "run" / "ckpt" / "iter_30")
    assert state["policy"]["params"]["net.w"].tolist() == [30.0]
    # What broke off in the middle cannot be gone on with exactly, and says so.
    assert manifest["guarantee"] == ("mid-iteration" if end == "exception" else "exact")


def test_after_a_learners_end_the_newest_checkpoint_is_exact(run, tmp_path):
    def stop(task, ctx):
        raise LearnerError("learner 1 has ended")

    for train_freq, saved, guarantee in ((20, ["iter_20"], "exact"), (None, ["iter_30"], "mid-iteration")):
        with pytest.raises(LearnerError):
            run(at_iteration(2, stop), train_freq=train_freq, max_step=50)
        assert names(tmp_path / "run" / "ckpt") == saved
        assert load_checkpoint(tmp_path / "run" / "ckpt" / saved[0])[1]["guarantee"] == guarantee


class Keeps:
    """A middleware with a state, which becomes another one in the first iteration."""

    def __init__(self, first, later):
        self.thing, self.later, self.calls = first, later, 0

    def __call__(self, ctx):
        self.thing = self.later
        self.calls += 1

    def state_dict(self):
        return {"thing": self.thing}

    def load_state_dict(self, state): ...


@pytest.mark.parametrize("unsavable", [{1}, np.array([None]), {"a": {2: 1}}, "x" * (1 << 22)])
@pytest.mark.parametrize(("late", "calls"), [(False, 0), (True, 1)])
def test_a_state_that_cannot_be_saved_ends_the_run(run, tmp_path, late, calls, unsavable):
    keeps = Keeps(0 if late else unsavable, unsavable)
    with pytest.raises(CheckpointError, match=r"cannot be saved|bytes of JSON, at most"):
        run(lambda task: keeps, max_step=50, train_freq=None)
    assert keeps.calls == calls
    assert not (tmp_path / "run" / "ckpt").exists() or names(tmp_path / "run" / "ckpt") == []


def test_a_run_that_saves_nothing_may_have_any_state(run):
    keeps = Keeps({1}, {2})
    run(lambda task: keeps, train_freq=None, final=False, keep_best=False)
    assert keeps.calls == 5


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
    assert (state["policy"]["params"]["net.w"].tolist(), manifest["eval_value"], saver.best) == ([20.0], 3.0, 3.0)
    assert names(saver.folder) == ["iter_50"]
    assert sorted(p.name for p in saver.folder.iterdir()) == ["best", "iter_50"]


@pytest.mark.parametrize(("failing", "unsaved"), [(6, True), (4, False)])
def test_it_knows_whether_the_last_state_could_be_saved(run, monkeypatch, caplog, failing, unsaved):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    real = os.fsync
    fill = at_iteration(3, lambda task, ctx: monkeypatch.setattr(os, "fsync", full))
    free = at_iteration(failing, lambda task, ctx: monkeypatch.setattr(os, "fsync", real))
    assert run(fill, free, max_step=5).unsaved is unsaved


def counts(folder):
    """Names of the checkpoints in a folder -> the gradient steps that their weights have made."""
    return {
        path.name: load_checkpoint(path)[0]["policy"]["params"]["net.w"].tolist() for path in sorted(folder.iterdir())
    }


def test_counters_go_on_from_a_saved_state(run, tmp_path):
    saver = run(evaluate(3.0))
    state, _ = load_checkpoint(saver.folder / "iter_40")
    weights, task = policy(), Task()
    with task.start(ctx=OnlineRLContext()):
        resumed = CkptSaver(weights, "run", 20, out_dir=tmp_path, task=task)
        task.use(Learner(weights)).use(evaluate(3.0)(task)).use(resumed)
        task.load_state_dict(state["task"])
        assert (resumed.best, task.ctx.train_iter) == (3.0, 40)
        task.run(max_step=task.ctx.total_step + 2)
    # The next one is due 20 gradient steps after the one resumed from.
    assert names(saver.folder) == ["iter_20", "iter_40", "iter_60"]
    # The course of the run that was abandoned with this is kept, as after `start(resume=...)`.
    assert len(list(saver.folder.glob("left-*-iter_50"))) == 1


# When a checkpoint is taken


class Count:
    """A stateful middleware that counts first and second halves."""

    def __init__(self):
        self.count = 0

    def __call__(self, ctx):
        self.count += 1
        yield
        self.count += 100

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@pytest.mark.parametrize("saver_first", [False, True])
def test_a_checkpoint_holds_the_end_of_the_iteration(run, saver_first):
    saver = run(lambda task: Count(), max_step=2, saver_first=saver_first)
    state, manifest = load_checkpoint(saver.folder / "iter_20")
    (count,) = (each["count"] for each in state["task"]["middleware"].values() if "count" in each)
    assert (count, state["task"]["ctx"]["total_step"], manifest["total_step"]) == (202, 2, 2)


@pytest.mark.parametrize(("at", "saved"), [(2, ["iter_20"]), (0, [])])
def test_an_abort_before_learning_replaces_no_checkpoint(tmp_path, at, saved):
    def collect(ctx):
        if ctx.total_step == at:
            raise RuntimeError("broken")

    weights, task = policy(), Task()
    with task.start(ctx=OnlineRLContext()):
        saver = CkptSaver(weights, "run", 20, out_dir=tmp_path, task=task)
        task.use(collect).use(Learner(weights)).use(saver)
        with pytest.raises(RuntimeError, match="broken"):
            task.run(max_step=5)
    assert names(saver.folder) == saved
    assert all(read_manifest(saver.folder / name)["guarantee"] == "exact" for name in saved)


def test_the_manifest_states_what_when_and_libraries(run):
    manifest = read_manifest(run().folder / "iter_40")
    expected = {"env_step": 400, "train_iter": 40, "total_step": 4}
    assert {key: manifest[key] for key in expected} == expected
    assert (manifest["identity"]["policy.type"], manifest["identity"]["env.env_id"]) == ("weights", "Line-v0")
    assert manifest["versions"].keys() == {"minding", "python", "mindspore", "numpy", "gymnasium", "blas"}
    assert manifest["versions"]["mindspore"] == "2.10.0"
    assert datetime.datetime.fromisoformat(manifest["created"]).utcoffset() == datetime.timedelta(0)


# Resume


@pytest.fixture
def resume(tmp_path):
    """Resumes with new objects and trains to `max_step`; returns (saver, weights, task)."""

    def start(request="latest", *others, max_step=5, weights=None, **options):
        weights, task = weights or policy(), Task()
        with task.start(ctx=OnlineRLContext(), resume=request):
            saver = CkptSaver(weights, "run", **{"train_freq": 20, **options}, out_dir=tmp_path, task=task)
            for middleware in [Learner(weights), *others, saver]:
                task.use(middleware)
            task.run(max_step=max_step)
        return saver, weights, task

    return start


def test_a_resume_with_another_kernel_of_matrix_products_says_so(run, resume, caplog, monkeypatch):
    here = library_versions()
    with monkeypatch.context() as other:
        other.setattr(checkpoints, "library_versions", lambda: {**here, "blas": "openblas Prescott"})
        run(max_step=4)
    with caplog.at_level(logging.INFO, "minding"):
        resume(max_step=7)
    assert f"(exact, but with another BLAS kernel, {here['blas']} in place of openblas Prescott: " in caplog.messages[0]


def test_latest_is_the_newest_run_in_the_folder(run, resume, tmp_path, caplog):
    run(max_step=8)
    run(max_step=4)
    saver, weights, _ = resume(max_step=5)
    assert (weights.value.tolist(), names(saver.folder)) == ([50.0], ["iter_20", "iter_40", "iter_50"])
    # What was set aside can be continued, and what has its place by then is set aside in turn.
    (aside,) = (tmp_path / "run").glob("left-*-ckpt")
    _, weights, _ = resume(aside / "iter_80", max_step=9)
    assert (weights.value.tolist(), names(saver.folder)) == ([90.0], ["iter_90"])
    assert sorted(map(names, (tmp_path / "run").glob("left-*-ckpt"))) == [
        ["iter_20", "iter_40", "iter_50"],
        ["iter_40", "iter_60", "iter_80"],
    ]


def test_changed_settings_are_listed_and_hold(run, resume, caplog):
    run(max_step=4)
    weights = policy(policy__learn__learning_rate=0.0003, run__max_env_step=2000, exp_name="moved")
    with caplog.at_level(logging.INFO, "minding"):
        saver, _, _ = resume(weights=weights, max_step=6)
    assert caplog.messages[0].endswith(
        "(exact); changed: run.max_env_step 1000 -> 2000, policy.learn.learning_rate 0.001 -> 0.0003"
    )
    state, _ = load_checkpoint(saver.folder / "iter_60")
    assert state["config"]["policy"]["learn"]["learning_rate"] == 0.0003
