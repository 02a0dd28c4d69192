"""Evaluation acts in the environment's units, training in the policy's own."""

import numpy as np
import pytest
from fakes import JUDGED, Judge

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.action_trees import ActionTree
from minding.engine.process.runtime import assign
from minding.envs import make_evaluator_env
from minding.envs.backends.group import episode_seed
from minding.middleware import StepCollector
from minding.middleware.evaluator import play_episodes

CASES = [
    *[("ppo", kind, True) for kind in JUDGED],
    ("ppo", "box", False),
    ("sac", "dict of numbers", True),
    ("sac", "box, limits for each number", True),
    ("dqn", "discrete, from minus four", True),
]


def settings(algorithm, kind, rescale, **policy):
    env = {"env_id": "fakes:Judge", "env_kwargs": {"kind": kind}, "rescale_action": rescale, "evaluator_env_num": 1}
    model = {"hidden": [8], "normalize_obs": True}
    return compile_run(Config(env=env, policy={"type": algorithm, "model": model, **policy}))


def made(cfg):
    """The policy, acting far from where PPO starts, so that limits matter."""
    policy = training.make_policy(cfg, modes=("collect", "eval"))
    for name, p in policy.params.items():
        if "head." in name and name.endswith(("weight", "bias")):
            assign(p, 30.0 * p.asnumpy())
    return policy


@pytest.mark.parametrize(("algorithm", "kind", "rescale"), CASES)
def test_eval_mode_plays_as_the_evaluator_does(algorithm, kind, rescale):
    cfg = settings(algorithm, kind, rescale)
    policy = made(cfg)
    manager = make_evaluator_env(cfg)
    played = play_episodes(policy.eval_mode, manager, 3, max_steps=100)
    env, returns = Judge(kind), []
    for episode in range(3):
        obs, _ = env.reset(seed=episode_seed(manager._source.seed, 0, episode))
        total, done = 0.0, False
        while not done:
            action = policy.eval_mode.forward(obs[None])[0]
            if "tree" in cfg.env.spec.env_action:
                action = ActionTree(cfg.env.spec.env_action).split(action)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + reward, terminated or truncated
        returns.append(total)
    assert returns == [end.episode_return for end in played]


def test_what_is_learned_from_is_in_the_policys_own_units():
    cfg = settings("ppo", "box, limits for each number", True)
    policy, env = made(cfg), make_evaluator_env(cfg)
    collector = StepCollector(Config(policy={"collect": {"n_sample": 50}, "learn": {}}), policy.collect_mode, env)
    ctx = OnlineRLContext()
    collector(ctx)
    rollout = ctx.trajectories
    own = rollout.action.reshape(50, 4)
    # A policy's own actions are alike in all numbers; to the environment, they lie between -3 and 300.
    assert -60.0 < own.min() < own.max() < 60.0
    rewards = policy.actors["eval"].adapter(rollout.action.reshape(50, 2, 2)).reshape(50, 4) @ np.arange(1.0, 5.0)
    np.testing.assert_allclose(rollout.reward.ravel(), rewards, rtol=1e-5)
