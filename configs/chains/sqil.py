"""Evaluate, collect, store with reward 0, learn from replay and in equal parts from an expert's steps with reward 1.

Reddy et al., 2020, https://arxiv.org/abs/1905.11108, algorithm 1.
"""

from minding.configs.chains import Chain
from minding.configs.chains.prior_data import SETTINGS, check, parts
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    OffPolicyLearner,
    StepCollector,
    eps_greedy_handler,
    interaction_evaluator,
    recorded_data_pusher,
    sqil_data_pusher,
)
from minding.middleware.eps_greedy import explores_by_chance


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    buffer, own, expert, data = parts(cfg, policy)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    if explores_by_chance(cfg):
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    task.use(sqil_data_pusher(cfg, own, expert=False))
    task.use(recorded_data_pusher(expert, data, reward=1.0))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


chain = Chain(fill, OnlineRLContext, check, SETTINGS, learner=OffPolicyLearner)
