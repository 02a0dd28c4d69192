"""Advantages are those of the policy that acted, in whatever lane they are computed."""

import numpy as np
import pytest
from of_algorithms import SMALL, short_run

from minding.configs import compile_run
from minding.engine import Config, Task
from minding.engine.chain.context import OnlineRLContext
from minding.envs import make_env_manager
from minding.middleware import StepCollector, gae_estimator, multistep_trainer
from minding.policies import get_policy_class

pytestmark = pytest.mark.shared_graphs


def nothing(ctx):
    """Without a role: what comes after it stays in the main process."""


def returns(between, **start):
    """What is learned from in each of five iterations."""
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "ppo"})
    cfg = compile_run(user, [*SMALL, *short_run("ppo"), "policy.learn.learning_rate=0.05", "env.max_episode_steps=10"])
    policy, task, seen = get_policy_class("ppo")(cfg), Task(), []
    with task.start(ctx=OnlineRLContext(), **start):
        task.use(StepCollector(cfg, policy.collect_mode, make_env_manager(cfg.env, 4, 0)))
        for function in between:
            task.use(function)
        task.use(gae_estimator(cfg, policy.collect_mode)).use(multistep_trainer(cfg, policy.learn_mode))
        task.use(lambda ctx: seen.append(ctx.train_data["return"].copy()))
        task.run(max_step=5)
    return np.stack(seen)


@pytest.fixture(scope="module")
def synchronous():
    return returns([])


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_function_before_the_estimator_changes_no_number(staleness, synchronous):
    # Which lane computes them is the same in threads, which start faster.
    lanes = {"async_mode": True, "lanes": {"max_staleness": staleness, "transport": "threads"}}
    together, apart = returns([], **lanes), returns([nothing], **lanes)
    assert np.array_equal(apart, together)
    assert np.array_equal(together, synchronous) == (staleness == 0)
