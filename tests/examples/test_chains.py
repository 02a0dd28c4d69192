"""The two chains that the README shows, over real environments: what they count, learn and save."""

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine import Config, OnlineRLContext, task
from minding.engine.buffers import ReplayBuffer
from minding.engine.checkpoint import list_checkpoints, load_checkpoint
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    CkptSaver,
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
)
from minding.policies import DQN, PPO

DQN_SETTINGS = {
    "learn": {"batch_size": 16, "warmup": 16, "update_per_collect": 2},
    "collect": {"n_sample": 8},
    "eval": {"freq": 8, "n_episode": 2},
    "other": {"buffer_size": 500},
}
PPO_SETTINGS = {
    "learn": {"n_epoch": 2, "n_minibatch": 2},
    "collect": {"n_sample": 64},
    "eval": {"freq": 64, "n_episode": 2},
}


@pytest.fixture
def made():
    """(algorithm, its class, settings) -> configuration, policy, and environments to collect and to evaluate in."""
    environments = []

    def make(algorithm, kind, policy):
        env = {"env_id": "CartPole-v1", "collector_env_num": 4, "evaluator_env_num": 2, "max_episode_steps": 30}
        policy = {"type": algorithm, "model": {"hidden": [16]}, **policy}
        cfg = compile_run(Config(seed=0, env=env, policy=policy))
        environments.extend([make_collector_env(cfg), make_evaluator_env(cfg)])
        return cfg, kind(cfg), *environments

    yield make
    for each in environments:
        each.close()


def test_the_off_policy_chain_runs_as_written(made, tmp_path):
    cfg, policy, collector_env, evaluator_env = made("dqn", DQN, DQN_SETTINGS)
    buffer_ = ReplayBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(data_pusher(cfg, buffer_))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100, out_dir=tmp_path))
        task.run(max_step=4)
    ctx = task.ctx
    # Eight steps an iteration; learning begins in the second, two gradient steps each.
    assert (ctx.total_step, ctx.env_step, len(buffer_), ctx.train_iter) == (4, 32, 32, 6)
    assert (ctx.last_eval_iter, ctx.last_eval_clock) == (4, 24)
    (saved,) = list_checkpoints(tmp_path / cfg.exp_name / "ckpt")
    state, _ = load_checkpoint(saved)
    assert saved.name == "iter_6"
    for name, value in policy.state_dict()["params"].items():
        assert np.array_equal(state["policy"]["params"][name], value)


def test_the_on_policy_chain_runs_as_written(made, tmp_path):
    cfg, policy, collector_env, evaluator_env = made("ppo", PPO, PPO_SETTINGS)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100, out_dir=tmp_path))
        task.run(max_step=3)
    ctx = task.ctx
    assert (ctx.total_step, ctx.env_step, ctx.train_iter) == (3, 192, 12)
    assert (ctx.last_eval_iter, ctx.last_eval_clock) == (8, 128)
    assert [path.name for path in list_checkpoints(tmp_path / cfg.exp_name / "ckpt")] == ["iter_12"]
