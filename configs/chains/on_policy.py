"""Evaluate, explore, collect, reward novelty if configured, add earlier rollouts if configured, estimate advantages,
learn from them."""

from minding.configs.chains import Chain
from minding.configs.chains.off_policy import use_novelty
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    StepCollector,
    eps_greedy_handler,
    gae_estimator,
    interaction_evaluator,
    multistep_trainer,
    rollout_queue,
)
from minding.middleware.eps_greedy import explores_by_chance


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    if explores_by_chance(cfg):
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    use_novelty(task, cfg)
    times = cfg.policy.learn.max_times_sampled
    if times > 1:
        task.use(rollout_queue(times))
    task.use(gae_estimator(cfg, policy.collect_mode))
    task.use(multistep_trainer(cfg, policy.learn_mode))


chain = Chain(
    fill, OnlineRLContext, settings=("policy.learn.gae_lambda", "policy.learn.n_minibatch"), learner=multistep_trainer
)
