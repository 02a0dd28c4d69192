"""Evaluate, explore, collect, store transitions with the original goals and with reached ones, learn from replay."""

from minding.configs.chains import Chain
from minding.configs.chains.off_policy import REPLAY, replay_buffer, table_limiter
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.data.observation import observation_leaves
from minding.engine.errors import ConfigError
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env, make_goal_rules
from minding.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    her_data_enhancer,
    interaction_evaluator,
)
from minding.middleware.eps_greedy import explores_by_chance
from minding.middleware.her_data_enhancer import NORMALIZED, goal_parts


def check(cfg: Config) -> None:
    """Raises ConfigError unless the environment has goals, and rewards belong to single steps and are not scaled."""
    try:
        goal_parts(leaf.path for leaf in observation_leaves(cfg.env.spec.observation))
    except ValueError as error:
        raise ConfigError(
            f"chain='hindsight' with env.env_id={cfg.env.env_id!r}: its observation {error}; use "
            "an environment with goals, or chain=off_policy"
        ) from None
    if cfg.policy.learn.nstep > 1:
        raise ConfigError(f"policy.learn.nstep={cfg.policy.learn.nstep} sums rewards of one goal: use 1 with hindsight")
    if cfg.policy.other.get("replay") == "table" and table_limiter(cfg).bounded:
        raise ConfigError(
            f"policy.other.table.limiter={cfg.policy.other.table.limiter!r} with chain='hindsight': copies are pushed "
            "when an episode ends, and it may forbid that: use none or min_size"
        )
    if cfg.env.normalize_reward:
        raise ConfigError(f"chain='hindsight': {NORMALIZED}")


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    buffer = replay_buffer(cfg, policy, images_once=False)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    if explores_by_chance(cfg):
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    task.use(data_pusher(cfg, buffer))
    task.use(her_data_enhancer(cfg, buffer, make_goal_rules(cfg)))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


chain = Chain(fill, OnlineRLContext, check, (*REPLAY, "policy.other.hindsight.k"), learner=OffPolicyLearner)
