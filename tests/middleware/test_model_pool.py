"""Versions are added when they are due and when they were measured, once, in a resumed run as in one that ran on."""

import shutil

import numpy as np
import pytest
from fakes import Weights

from minding.engine import ConfigError, OfflineRLContext, OnlineRLContext, Task, declare
from minding.engine.run.pool import ModelPool
from minding.middleware import CkptSaver, model_pool

CONFIG = {"policy": {"type": "number"}, "env": {"env_id": "none"}}


@declare(role="evaluate", reads=("total_step",), writes=("eval_value",))
def evaluator():
    def evaluate(ctx):
        if ctx.total_step % 3 == 2:
            ctx.eval_value = -float(ctx.total_step)

    return evaluate


def learner(policy):
    def learn(ctx):
        policy.value += 1
        ctx.train_iter += 1
        ctx.env_step += 10

    return learn


def watcher(event):
    def watch(ctx):
        event(ctx)

    return watch


def train(folder, steps, event=lambda ctx: None, *, freq=2, unit="iteration", resume=None, score=None, **options):
    policy, task, pool = Weights(CONFIG), Task(), ModelPool(folder / "run/models", **options)
    with task.start(ctx=OnlineRLContext(), resume=resume):
        task.use(evaluator())
        task.use(model_pool(policy, pool, freq, unit=unit, score=score))
        task.use(learner(policy))
        task.use(watcher(event))
        task.use(CkptSaver(policy, "run", 3, out_dir=folder, task=task))
        task.run(max_step=steps)
    return pool


def told(pool):
    return [(each.iteration, each.env_step, each.score, pool.read(each)["net.w"].tolist()) for each in pool.versions]


def test_a_version_was_measured_before_the_iteration_learned(tmp_path):
    pool = train(tmp_path, 7)
    assert told(pool) == [
        (0, 0, None, [0.0]),
        (2, 20, -2.0, [2.0]),
        (4, 40, None, [4.0]),
        (5, 50, -5.0, [5.0]),
        (6, 60, None, [6.0]),
    ]
    assert pool.find("best").iteration == 2
    assert pool.find(1).network == "module:Net"


def test_another_score_takes_the_place_of_evaluations(tmp_path):
    pool = train(tmp_path, 5, score=iter((1.0, 3.0, 2.0)).__next__)
    assert [(each.iteration, each.score) for each in pool.versions] == [(0, 1.0), (2, 3.0), (4, 2.0)]


def test_an_asynchronous_evaluation_measures_its_weights(tmp_path):
    policy, pool = Weights(CONFIG), ModelPool(tmp_path)
    policy.value += 7
    ctx = OnlineRLContext(env_step=70, eval_value=2.0, eval_params={"net.w": np.array([4.0])}, last_eval_clock=40)
    model_pool(policy, pool, 100)(ctx)
    assert told(pool) == [(0, 40, 2.0, [4.0])]
    offline = ModelPool(tmp_path / "offline")
    model_pool(policy, offline, 1)(OfflineRLContext())
    assert told(offline) == [(0, 0, None, [7.0])]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Stop(Exception):
    pass


def stop_in(iteration):
    def stop(ctx):
        if ctx.total_step == iteration:
            raise Stop

    return stop


def test_gradient_steps_can_be_counted_instead_of_iterations(tmp_path):
    pool = ModelPool(tmp_path)
    add = model_pool(Weights(CONFIG), pool, 10, unit="train_iter")
    for iteration, train_iter in enumerate((0, 4, 9, 12, 20, 22, 50)):
        add(OnlineRLContext(total_step=iteration, train_iter=train_iter))
    assert [each.iteration for each in pool.versions] == [0, 3, 5, 6]
    with pytest.raises(ConfigError, match=r"model_pool\(unit='step'\): expected one of iteration, train_iter"):
        model_pool(Weights(CONFIG), pool, 10, unit="step")


@pytest.mark.parametrize("options", [{}, {"last": 1}, {"freq": 4, "unit": "train_iter"}])
def test_a_resumed_run_has_the_pool_of_one_that_ran_on(tmp_path, options):
    whole = train(tmp_path / "whole", 20, **options)

    def photograph(ctx):
        if ctx.total_step == 11:
            shutil.copytree(tmp_path / "gone/run", tmp_path / "copy/run")

    train(tmp_path / "gone", 12, photograph, **options)
    resumed = train(tmp_path / "copy", 20, resume="latest", **options)
    assert contents(resumed.folder) == contents(whole.folder)
    # From an older checkpoint, whose versions are gone by now.
    again = train(tmp_path / "copy", 20, resume=tmp_path / "gone/run/ckpt/iter_6", **options)
    assert contents(again.folder) == contents(whole.folder)


def test_an_iteration_that_was_aborted_adds_its_version_once(tmp_path):
    with pytest.raises(Stop):
        train(tmp_path, 20, stop_in(4))
    assert len(ModelPool(tmp_path / "run/models").versions) == 3
    pool = train(tmp_path, 6, resume="latest")
    assert [each.iteration for each in pool.versions] == [0, 2, 4, 5]


def test_versions_of_an_earlier_run_are_set_aside(tmp_path, caplog):
    train(tmp_path, 3)
    pool = train(tmp_path, 1)
    assert len(pool.versions) == 1
    (aside,) = (tmp_path / "run").glob("left-*-models")
    assert len(ModelPool(aside).versions) == 2
    assert "holds versions of an earlier run: it is now" in caplog.text
