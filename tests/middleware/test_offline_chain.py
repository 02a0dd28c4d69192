"""A chain without an environment to collect in: the same middleware on an `OfflineRLContext`."""

import csv

import numpy as np
import pytest
from fakes import AgePolicy, CountingEnv, ReadingLearner, Weights

from minding.engine import ChainError, OfflineRLContext, Task, declare
from minding.engine.checkpoint import newest_checkpoint, read_manifest
from minding.engine.data.batch import Field
from minding.middleware import (
    CkptSaver,
    StepCollector,
    interaction_evaluator,
    online_logger,
    termination_checker,
    trainer,
)

FIELDS = {"number": Field()}


@declare(writes=("train_data",))
def numbers():
    """Hands on four rows with the number of the iteration."""

    def fetch(ctx):
        ctx.train_data = {"number": np.full(4, ctx.total_step, np.float32), "valid": np.ones(4, bool)}

    return fetch


@pytest.fixture
def run(counting_config, tmp_path):
    def start(max_train_iter, resume=None):
        settings = {"policy.eval.freq": 4, "policy.eval.n_episode": 2, "run.metrics_freq": 5, "run.loggers": []}
        cfg = counting_config("ppo", **settings)
        cfg.run.max_env_step, cfg.run.max_train_iter = None, 20
        task, learner = Task(), ReadingLearner(FIELDS)
        with task.start(ctx=OfflineRLContext(), resume=resume):
            task.use(interaction_evaluator(cfg, AgePolicy().eval_mode, CountingEnv(), task=task))
            task.use(numbers())
            task.use(trainer(cfg, learner))
            task.use(termination_checker(max_train_iter=max_train_iter, task=task))
            task.use(CkptSaver(Weights(cfg), "run", 3, out_dir=tmp_path, task=task))
            task.use(online_logger(cfg, tmp_path / "run", progress=False))
            task.run()
        return task.ctx, learner

    return start


def rows(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in csv.DictReader(file)]


def test_the_clock_of_an_offline_chain_counts_gradient_steps(run, tmp_path):
    ctx, learner = run(10)
    assert (ctx.train_iter, ctx.clock, ctx.last_eval_clock, ctx.last_eval_iter) == (10, 10, 8, 8)
    # Schedules run over `run.max_train_iter`.
    assert learner.progress == [number / 20 for number in range(10)]
    manifest = read_manifest(newest_checkpoint(tmp_path / "run" / "ckpt"))
    assert (manifest["unit"], manifest["train_iter"], "env_step" in manifest) == ("train_iter", 10, False)
    table = rows(tmp_path / "run")
    assert next(iter(table[0])) == "train_iter"
    assert [row["train_iter"] for row in table if row["eval/return_mean"]] == ["4", "8"]
    assert [row["train_iter"] for row in table if not row["eval/return_mean"]] == ["5", "10"]


def test_an_offline_chain_goes_on_from_its_checkpoint(run, tmp_path, caplog):
    caplog.set_level("INFO", "minding")
    run(10)
    whole = rows(tmp_path / "run")
    again, _ = run(20, resume="latest")
    assert (again.train_iter, again.total_step) == (20, 20)
    assert "at train_iter 10 (exact)" in caplog.text
    assert rows(tmp_path / "run")[: len(whole)] == whole


def test_a_collector_has_no_place_in_an_offline_chain(counting_config):
    cfg = counting_config("ppo")
    task = Task()
    with task.start(ctx=OfflineRLContext()):
        task.use(StepCollector(cfg, AgePolicy().collect_mode, CountingEnv()))
        with pytest.raises(ChainError, match=r"ctx\.env_step, which OfflineRLContext does not have"):
            task.run(max_step=1)
