"""Evaluate, collect, replace rewards by the discriminator's, estimate advantages, learn (GAIL)."""

from __future__ import annotations

from minding.configs.chains import Chain
from minding.configs.recorded import data_folder, open_data
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.dataset import check_fits, load_dataset
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    StepCollector,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
    reward_estimator,
)


def check(cfg: Config) -> None:
    """Refuses a configuration without valid recorded data that fit its environment."""
    open_data(cfg, cfg.policy.other.read("gail.batch_size", int), "policy.other.gail.batch_size")


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    """Appends the chain to the task."""
    # Loads MindSpore.
    from minding.policies.rewards.gail import GAIL

    folder = data_folder(cfg)
    expert = load_dataset(folder)
    check_fits(expert, cfg.env, folder)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    task.use(reward_estimator(GAIL(cfg, expert), 1.0, own=0.0))
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))


chain = Chain(
    fill,
    OnlineRLContext,
    check,
    ("policy.other.data", "policy.other.gail.batch_size", "policy.learn.gae_lambda"),
    staleness=1,
)
