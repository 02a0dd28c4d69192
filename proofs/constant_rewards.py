"""Chains of PPO with a constant in place of every reward, beside which GAIL has to count.

``minding train acrobot_gail chain=proofs.constant_rewards:minus_one``: all else is as in the chain `recorded_reward`.
"""

from __future__ import annotations

import numpy as np

from minding.configs.chains import Chain
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.rollout import Rollout
from minding.engine.types import Policy, RewardEstimate, StateDict
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import StepCollector, gae_estimator, interaction_evaluator, multistep_trainer, reward_estimator


class Constant:
    """A `RewardModel` that gives every step the same reward, and learns nothing."""

    def __init__(self, value: float) -> None:
        self.value = value

    def estimate(self, rollout: Rollout) -> RewardEstimate:
        return RewardEstimate(np.full(rollout.shape, self.value, np.float32), {})

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        pass


def plus_one() -> Chain:
    """Pays for every step: a longer episode is worth more."""
    return _chain(1.0)


def minus_one() -> Chain:
    """Charges for every step: an episode that ends is worth more."""
    return _chain(-1.0)


def _chain(value: float) -> Chain:
    def fill(task: Task, cfg: Config, policy: Policy) -> None:
        task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
        task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
        task.use(reward_estimator(Constant(value), 1.0, own=0.0))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(cfg, policy.learn_mode))

    return Chain(fill, OnlineRLContext)
