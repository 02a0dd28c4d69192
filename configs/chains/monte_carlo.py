"""Evaluate, collect, compute the returns of whole episodes, learn from them."""

from minding.configs.chains import Chain
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import StepCollector, interaction_evaluator, montecarlo_return_estimator, multistep_trainer


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    task.use(montecarlo_return_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))


chain = Chain(
    fill, OnlineRLContext, settings=("policy.learn.gamma", "policy.learn.n_minibatch"), learner=multistep_trainer
)
