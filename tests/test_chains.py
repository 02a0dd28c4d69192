"""The chains people write, over real environments; and that every algorithm learns."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from easydict import EasyDict

from minding.configs import compile_run
from minding.configs.recipes import final_evaluation
from minding.engine import ChainError, OnlineRLContext, Task, task
from minding.engine.batch import Field
from minding.engine.buffers import UniformBuffer
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
    nstep_reward_enhancer,
    trainer,
    trajectory_trainer,
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
    shared = SETTINGS[get_algorithm(algorithm).recipe]
    parts = {part: {**shared.get(part, {}), **policy.get(part, {})} for part in {*shared, *policy}}
    parts["model"] = {"hidden": [16], **policy.get("model", {})}
    return compile_run(
        EasyDict(
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
    buffer_ = UniformBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
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


@pytest.mark.parametrize(("algorithm", "env_id"), [("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_the_off_policy_chain_runs_as_written(algorithm, env_id, tmp_path):
    cfg = settings(algorithm, env_id)
    policy, ctx, buffer = run_off_policy(cfg, 4, tmp_path)
    # Eight steps an iteration; learning begins in the second, two gradient steps each.
    assert (ctx.total_step, ctx.env_step, len(buffer), ctx.train_iter) == (4, 32, 32, 6)
    assert (ctx.last_eval_iter, ctx.last_eval_env_step) == (4, 24)
    (saved,) = list_checkpoints(tmp_path / cfg.exp_name / "ckpt")
    state, _ = load_checkpoint(saved)
    assert saved.name == "iter_6"
    for name, value in policy.state_dict()["params"].items():
        assert np.array_equal(state["policy"]["params"][name], value)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_on_policy_chain_runs_as_written(env_id, tmp_path):
    cfg = settings("ppo", env_id)
    _, ctx = run_on_policy(cfg, 3, tmp_path)
    assert (ctx.total_step, ctx.env_step, ctx.train_iter) == (3, 192, 12)
    assert (ctx.last_eval_iter, ctx.last_eval_env_step) == (8, 128)
    assert [p.name for p in list_checkpoints(tmp_path / cfg.exp_name / "ckpt")] == ["iter_12"]


@pytest.mark.parametrize(("algorithm", "iterations"), [pytest.param("dqn", 250, marks=pytest.mark.slow), ("ppo", 32)])
def test_one_seed_gives_one_run_to_the_bit(algorithm, iterations, tmp_path):
    run = run_off_policy if algorithm == "dqn" else run_on_policy
    seldom = {"freq": 1000, "n_episode": 2}
    first, ctx, *_ = run(settings(algorithm, "CartPole-v1", eval=seldom), iterations, tmp_path / "a")
    assert 2000 <= ctx.env_step < 2100
    second, *_ = run(settings(algorithm, "CartPole-v1", eval=seldom), iterations, tmp_path / "b")
    assert digest(first) == digest(second)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "env_id"), [("dqn", "CartPole-v1"), ("ppo", "Pendulum-v1"), ("sac", "Pendulum-v1")]
)
def test_one_seed_gives_one_run_in_fresh_processes(algorithm, env_id, tmp_path):
    script = (
        "import sys; from pathlib import Path; import test_chains as t\n"
        f"run = t.run_on_policy if {algorithm!r} == 'ppo' else t.run_off_policy\n"
        f"iterations = 32 if {algorithm!r} == 'ppo' else 250\n"
        f"policy, *_ = run(t.settings({algorithm!r}, {env_id!r}), iterations, Path(sys.argv[1]))\n"
        "print(t.digest(policy))\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / str(turn))],
            capture_output=True, text=True, check=True, timeout=300,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
        ).stdout.splitlines()[-1]
        for turn in range(2)
    }  # fmt: skip
    assert len(digests) == 1


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
    yield EasyDict(ppo=on_policy, dqn=off_policy), {
        "ppo": get_policy_class("ppo")(on_policy),
        "dqn": get_policy_class("dqn")(off_policy),
        "env": env,
    }
    env.close()
    other.close()


def test_an_estimator_without_a_collector_says_what_to_add(parts):
    cfg, made = parts
    text = problem(gae_estimator(cfg.ppo, made["ppo"].collect_mode), multistep_trainer(cfg.ppo, made["ppo"].learn_mode))
    assert "gae_estimator at position 0 reads ctx.trajectories, which nothing before it writes; add a collector" in text


def test_a_buffer_of_other_fields_says_how_to_make_it(parts):
    cfg, made = parts
    buffer = UniformBuffer(100, {"obs": Field((3,))})
    text = problem(
        StepCollector(cfg.dqn, made["dqn"].collect_mode, made["env"]),
        data_pusher(cfg.dqn, buffer),
        OffPolicyLearner(cfg.dqn, made["dqn"].learn_mode, buffer),
    )
    assert text.startswith("OffPolicyLearner at position 2: the buffer holds the fields ['obs'], the policy learns")


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
    assert "multistep_trainer at position 0 learns before StepCollector at position 1 collects; move it behind" in text


# Learning, in seconds


def learn(algorithm, env_id, steps, **policy):
    """Mean returns of 20 episodes after `steps` environment steps, for two seeds."""
    results = []
    for seed in (0, 1):
        cfg = settings(algorithm, env_id, seed, **policy)
        learner = get_policy_class(algorithm)(cfg)
        run_chain(cfg, learner, steps)
        results.append(float(np.mean([end.episode_return for end in final_evaluation(cfg, learner, 20)])))
    return results


def run_chain(cfg, policy, steps):
    env = make_env_manager(cfg.env, 4, cfg.seed)
    own = Task()
    with own.start(ctx=OnlineRLContext()):
        if cfg.recipe == "trajectory":
            own.use(StepCollector(cfg, policy.collect_mode, env))
            own.use(trajectory_trainer(cfg, policy.learn_mode))
        elif cfg.recipe != "off_policy":
            own.use(StepCollector(cfg, policy.collect_mode, env))
            own.use(gae_estimator(cfg, policy.collect_mode))
            train = multistep_trainer if cfg.recipe == "on_policy" else trainer
            own.use(train(cfg, policy.learn_mode))
        else:
            buffer = UniformBuffer(cfg.policy.other.buffer_size, policy.learn_mode.fields, seed=cfg.seed)
            if "eps" in cfg.policy.other:
                own.use(eps_greedy_handler(cfg))
            own.use(StepCollector(cfg, policy.collect_mode, env))
            if cfg.policy.learn.nstep > 1:
                own.use(nstep_reward_enhancer(cfg))
            own.use(data_pusher(cfg, buffer))
            own.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
        own.run(max_step=steps // cfg.policy.collect.n_sample)


@pytest.mark.slow
def test_dqn_walks_past_the_small_reward_to_the_large_one():
    learn_settings = {"batch_size": 32, "update_per_collect": 4, "learning_rate": 5e-3, "nstep": 2, "gamma": 0.9}
    other = {"eps": {"decay": 1000}, "buffer_size": 2000}
    target = {"freq": 50}
    returns = learn("dqn", "fakes:Corridor", 1600, learn={**learn_settings, "target": target}, other=other)
    assert min(returns) == 1.0, returns


def test_ppo_answers_the_context():
    returns = learn("ppo", "fakes:Parity", 2000, learn={"learning_rate": 0.01, "n_epoch": 4})
    assert min(returns) >= 0.95, returns


@pytest.mark.slow
def test_impala_answers_the_context():
    returns = learn("impala", "fakes:Parity", 2000, learn={"learning_rate": 0.02})
    assert min(returns) >= 0.95, returns


@pytest.mark.slow
def test_a3c_answers_the_context():
    returns = learn("a3c", "fakes:Parity", 2000, learn={"learning_rate": 0.02})
    assert min(returns) >= 0.95, returns


@pytest.mark.slow
def test_sac_aims_at_the_target():
    # A random action is off by 0.4 on average.
    returns = learn(
        "sac",
        "fakes:Aim",
        1200,
        learn={"learning_rate": 3e-3, "alpha": 0.1, "batch_size": 32, "update_per_collect": 4},
        model={"hidden": [32]},
    )
    assert min(returns) >= -0.05, returns
