"""The chains people write, over real environments; and that every algorithm learns."""

import hashlib

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine import Config, OnlineRLContext, task
from minding.engine.buffers import ReplayBuffer
from minding.engine.checkpoint import list_checkpoints, load_checkpoint
from minding.envs import make_env_manager
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
from minding.policies import get_algorithm, get_policy_class

OFF_POLICY = {
    "learn": {"batch_size": 16, "warmup": 16, "update_per_collect": 2},
    "collect": {"n_sample": 8},
    "eval": {"freq": 8, "n_episode": 2},
    "other": {"buffer_size": 500},
}
ROLLOUTS = {"collect": {"n_sample": 64}, "eval": {"freq": 64, "n_episode": 2}}
ON_POLICY = {**ROLLOUTS, "learn": {"n_epoch": 2, "n_minibatch": 2}}
SETTINGS = {"off_policy": OFF_POLICY, "on_policy": ON_POLICY, "single_step": ROLLOUTS, "trajectory": ROLLOUTS}


def settings(algorithm, env_id, seed=0, **policy):
    shared = SETTINGS[get_algorithm(algorithm).chain]
    parts = {part: {**shared.get(part, {}), **policy.get(part, {})} for part in {*shared, *policy}}
    parts["model"] = {"hidden": [16], **policy.get("model", {})}
    return compile_run(
        Config(
            seed=seed,
            env={"env_id": env_id, "collector_env_num": 4, "evaluator_env_num": 2, "max_episode_steps": 30},
            policy={"type": algorithm, **parts},
        )
    )


def environments(cfg):
    return make_env_manager(cfg.env, 4, cfg.seed), make_env_manager(cfg.env, 2, cfg.seed + 1, training=False)


def run_off_policy(cfg, iterations, folder):
    """The off-policy chain as it is documented, on the global task."""
    policy = get_policy_class(cfg.policy.type)(cfg)
    collector_env, evaluator_env = environments(cfg)
    buffer_ = ReplayBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        if "eps" in cfg.policy.other:
            task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(data_pusher(cfg, buffer_))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100, out_dir=folder))
        task.run(max_step=iterations)
    return policy, task.ctx, buffer_


def run_on_policy(cfg, iterations, folder):
    """The on-policy chain as it is documented, on the global task."""
    policy = get_policy_class(cfg.policy.type)(cfg)
    collector_env, evaluator_env = environments(cfg)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))
        task.use(CkptSaver(policy, cfg.exp_name, train_freq=100, out_dir=folder))
        task.run(max_step=iterations)
    return policy, task.ctx


def digest(policy):
    """SHA-256 of all parameters."""
    total = hashlib.sha256()
    for name, value in sorted(policy.state_dict()["params"].items()):
        total.update(name.encode() + value.tobytes())
    return total.hexdigest()


@pytest.mark.parametrize(
    ("algorithm", "env_id"), [("dqn", "CartPole-v1"), pytest.param("sac", "Pendulum-v1", marks=pytest.mark.slow)]
)
def test_the_off_policy_chain_runs_as_written(algorithm, env_id, tmp_path):
    cfg = settings(algorithm, env_id)
    policy, ctx, buffer = run_off_policy(cfg, 4, tmp_path)
    # Eight steps an iteration; learning begins in the second, two gradient steps each.
    assert (ctx.total_step, ctx.env_step, len(buffer), ctx.train_iter) == (4, 32, 32, 6)
    assert (ctx.last_eval_iter, ctx.last_eval_clock) == (4, 24)
    (saved,) = list_checkpoints(tmp_path / cfg.exp_name / "ckpt")
    state, _ = load_checkpoint(saved)
    assert saved.name == "iter_6"
    for name, value in policy.state_dict()["params"].items():
        assert np.array_equal(state["policy"]["params"][name], value)


@pytest.mark.parametrize("env_id", ["CartPole-v1", pytest.param("Pendulum-v1", marks=pytest.mark.slow)])
def test_the_on_policy_chain_runs_as_written(env_id, tmp_path):
    cfg = settings("ppo", env_id)
    _, ctx = run_on_policy(cfg, 3, tmp_path)
    assert (ctx.total_step, ctx.env_step, ctx.train_iter) == (3, 192, 12)
    assert (ctx.last_eval_iter, ctx.last_eval_clock) == (8, 128)
    assert [p.name for p in list_checkpoints(tmp_path / cfg.exp_name / "ckpt")] == ["iter_12"]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "iterations"), [("dqn", 250), ("ppo", 32)])
def test_one_seed_gives_one_run_to_the_bit(algorithm, iterations, tmp_path):
    run = run_off_policy if algorithm == "dqn" else run_on_policy
    seldom = {"freq": 1000, "n_episode": 2}
    first, ctx, *_ = run(settings(algorithm, "CartPole-v1", eval=seldom), iterations, tmp_path / "a")
    assert 2000 <= ctx.env_step < 2100
    second, *_ = run(settings(algorithm, "CartPole-v1", eval=seldom), iterations, tmp_path / "b")
    assert digest(first) == digest(second)
