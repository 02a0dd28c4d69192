"""Evaluate, explore, collect, store, learn from whole episodes of replay."""

from minding.configs.chains import Chain
from minding.configs.chains.off_policy import own_buffer
from minding.engine.buffers import ReplayBuffer, Sequences
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError
from minding.engine.types import Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import OffPolicyLearner, StepCollector, data_pusher, eps_greedy_handler, interaction_evaluator


def check(cfg: Config) -> None:
    """Refuses episodes without a time limit, and a buffer that is too small to keep whole episodes for learning."""
    limit, size, envs = cfg.env.spec.max_episode_steps, cfg.policy.other.buffer_size, cfg.env.collector_env_num
    if limit is None:
        raise ConfigError(
            f"chain='episode_replay' with env.env_id={cfg.env.env_id!r}: episodes are learned from as wholes, and its "
            "own have no time limit: set env.max_episode_steps"
        )
    # When one ends, rows of all environments have come since its first one; the next one ends as many later.
    if size < 2 * limit * envs:
        raise ConfigError(
            f"policy.other.buffer_size={size} does not hold two episodes of up to {limit} steps of each of the {envs} "
            f"environments: use policy.other.buffer_size={2 * limit * envs} or more"
        )


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    assert cfg.env.spec.max_episode_steps is not None, "see check"
    limit, size = cfg.env.spec.max_episode_steps, cfg.policy.other.buffer_size
    buffer = own_buffer(cfg, policy)
    if buffer is None:
        episodes = Sequences(limit, whole=True)
        buffer = ReplayBuffer(size, policy.learn_mode.fields, sequences=episodes, images_once=True, seed=cfg.seed)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


chain = Chain(fill, OnlineRLContext, check, learner=OffPolicyLearner)
