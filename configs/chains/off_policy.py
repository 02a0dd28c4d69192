"""Evaluate, explore, collect, reward novelty if configured, store, learn from replay."""

from collections.abc import Mapping
from typing import Any

from minding.configs.chains import Chain
from minding.engine.buffers import Priority, ReplayBuffer, Table
from minding.engine.buffers.base import buffer_class
from minding.engine.buffers.limiters import Limiter, make_limiter
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import Role
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.named import is_named
from minding.engine.data.batch import Field
from minding.engine.error_origin import building
from minding.engine.errors import ConfigError
from minding.engine.types import Buffer, Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
    nstep_reward_enhancer,
    reward_estimator,
)
from minding.middleware.eps_greedy import explores_by_chance
from minding.middleware.learner import never_allowed
from minding.policies.rewards import novelty_weights

REPLAY = ("policy.other.buffer_size", "policy.learn.batch_size", "policy.learn.warmup", "policy.learn.nstep")
"""Settings of all algorithms that learn from replay."""


def replay_buffer(cfg: Config, policy: Policy, *, images_once: bool = True) -> Buffer:
    """The configured buffer for the fields of the policy; rows that do not follow each other contain their images."""
    other, fields = cfg.policy.other, policy.learn_mode.fields
    if (own := own_buffer(cfg, policy)) is not None:
        return own
    if other.get("replay") == "table":
        return _table(cfg, fields)
    priority = _priority(cfg) if other.get("replay") == "prioritized" else None
    return ReplayBuffer(other.buffer_size, fields, priority=priority, images_once=images_once, seed=cfg.seed)


def own_buffer(cfg: Config, policy: Policy) -> Buffer | None:
    """The buffer that ``policy.other.replay`` names as ``module:Class``; None if it names one of minding's own."""
    name = cfg.policy.other.replay
    if not is_named(name):
        return None
    kind: Any = buffer_class(name)
    with building(f"policy.other.replay={name!r}: making it"):
        buffer: Buffer = kind(cfg, policy.learn_mode.fields)
    return buffer


def table_limiter(cfg: Config) -> Limiter:
    """The limiter of the configured table."""
    settings = cfg.policy.other.table
    order = {"queue": "fifo", "stack": "lifo"}.get(settings.limiter)
    if order and (settings.sampler, settings.remover, settings.max_times_sampled) != (order, order, 1):
        raise ConfigError(
            f"policy.other.table.limiter={settings.limiter!r} gives each row once: also set "
            f"policy.other.table.sampler={order}, policy.other.table.remover={order} and "
            "policy.other.table.max_times_sampled=1"
        )
    return make_limiter(
        settings.limiter,
        rows=settings.limiter_rows,
        samples_per_insert=settings.samples_per_insert,
        error=settings.limiter_error,
        what="policy.other.table.limiter",
    )


def check(cfg: Config) -> None:
    """Refuses a table whose limiter would block the learner forever."""
    if cfg.policy.other.get("replay") != "table":
        return
    limiter = table_limiter(cfg)
    for problem in never_allowed(limiter, cfg) if limiter.bounded else ():
        raise ConfigError(f"policy.other.table.limiter={cfg.policy.other.table.limiter!r}: {problem}")


def _table(cfg: Config, fields: Mapping[str, Field]) -> Table:
    other = cfg.policy.other
    settings = other.table
    return Table(
        other.buffer_size,
        fields,
        settings.sampler,
        settings.remover,
        settings.max_times_sampled,
        table_limiter(cfg),
        priority=_priority(cfg),
        seed=cfg.seed,
    )


def _priority(cfg: Config) -> Priority:
    priority = cfg.policy.other.priority
    return Priority(priority.alpha, priority.beta, priority.beta_steps)


def use_novelty(task: Task, cfg: Config) -> Role | None:
    """Appends the configured rewards for novelty to the task, whose last middleware collects."""
    weights = novelty_weights(cfg)
    for name, weight in weights.items():
        # Loads MindSpore.
        from minding.policies.rewards import reward_model

        task.use(reward_estimator(reward_model(name)(cfg), weight))
    return Role.LEARN if weights else None


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    buffer = replay_buffer(cfg, policy)
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    if explores_by_chance(cfg):
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    role = use_novelty(task, cfg)
    if cfg.policy.learn.nstep > 1:
        task.use(nstep_reward_enhancer(cfg), role=role)
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


chain = Chain(fill, OnlineRLContext, check, REPLAY, learner=OffPolicyLearner)
