"""Every algorithm trains given only an environment and its name."""

import pytest
from easydict import EasyDict
from of_algorithms import environment, length

from minding import training
from minding.configs import compile_run
from minding.engine.run.run_dir import RunDir
from minding.policies import ALGORITHMS


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_learns_with_its_own_defaults(algorithm, tmp_path):
    short = (*length(algorithm, 1024), "run.final_episodes=1", f"run.out_dir={tmp_path}")
    cfg = compile_run(EasyDict(env={"env_id": environment(algorithm)}, policy={"type": algorithm}), short)
    summary = training.train(cfg, RunDir.create(cfg), progress=False)
    assert max(summary.env_step, summary.train_iter) >= 1024
    assert summary.train_iter > 0
