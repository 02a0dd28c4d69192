"""The chains people write, over real environments; and that every algorithm learns."""

import hashlib

import numpy as np
import pytest

from minding.configs import compile_run
from minding.engine import ChainError, Config, OnlineRLContext, Task, task
from minding.engine.buffers import ReplayBuffer
from minding.engine.checkpoint import list_checkpoints, load_checkpoint
from minding.engine.data.batch import Field
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


# Chains that do not fit


def problem(*middleware):
    with Task().start(ctx=OnlineRLContext()) as own:
        for each in middleware:
            own.use(each)
        with pytest.raises(ChainError) as caught:
            own.run(max_step=1)
    return str(caught.value)


@pytest.fixture(scope="module")
def parts():
    """Configuration and policy of both kinds, and environments; nothing is compiled."""
    on_policy, off_policy = settings("ppo", "CartPole-v1"), settings("dqn", "CartPole-v1")
    env, other = environments(on_policy)
    yield (
        Config(ppo=on_policy, dqn=off_policy),
        {
            "ppo": get_policy_class("ppo")(on_policy),
            "dqn": get_policy_class("dqn")(off_policy),
            "env": env,
        },
    )
    env.close()
    other.close()


def test_an_estimator_without_a_collector_says_what_to_add(parts):
    cfg, made = parts
    text = problem(gae_estimator(cfg.ppo, made["ppo"].collect_mode), multistep_trainer(cfg.ppo, made["ppo"].learn_mode))
    assert "gae_estimator at position 0 reads ctx.trajectories, which nothing before it writes; add a collector" in text


def test_a_buffer_of_other_fields_says_how_to_make_it(parts):
    cfg, made = parts
    buffer = ReplayBuffer(100, {"obs": Field((3,))})
    text = problem(
        StepCollector(cfg.dqn, made["dqn"].collect_mode, made["env"]),
        data_pusher(cfg.dqn, buffer),
        OffPolicyLearner(cfg.dqn, made["dqn"].learn_mode, buffer),
    )
    assert "OffPolicyLearner at position 2: field 'obs' is float32 (3,) in the buffer, and the policy" in text
    assert all(f"field '{name}'" in text for name in ("next_obs", "action", "reward", "terminated", "discount"))
    assert "fields={**policy.learn_mode.fields, ...}" in text


def test_an_estimator_of_a_policy_without_values_is_refused(parts):
    cfg, made = parts
    text = problem(
        StepCollector(cfg.dqn, made["dqn"].collect_mode, made["env"]), gae_estimator(cfg.ppo, made["dqn"].collect_mode)
    )
    assert text == (
        "gae_estimator at position 1: the policy records no state value: use an actor-critic policy such as PPO"
    )


def test_a_trainer_before_the_collector_is_out_of_place(parts):
    cfg, made = parts
    text = problem(
        multistep_trainer(cfg.ppo, made["ppo"].learn_mode),
        StepCollector(cfg.ppo, made["ppo"].collect_mode, made["env"]),
        gae_estimator(cfg.ppo, made["ppo"].collect_mode),
    )
    assert "multistep_trainer at position 0 learns before StepCollector at position 1 collects; move it after" in text
