"""Evaluate, collect, add earlier rollouts if configured, learn from the trajectories in order."""

from minding.configs.chains import Chain
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import StepCollector, interaction_evaluator, rollout_queue, trajectory_trainer


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    times = cfg.policy.learn.max_times_sampled
    if times > 1:
        task.use(rollout_queue(times))
    task.use(trajectory_trainer(cfg, policy.learn_mode))


chain = Chain(fill, OnlineRLContext, settings=("policy.learn.n_epoch",), learner=trajectory_trainer)
