"""Evaluate, explore, collect, reward novelty if configured, store, learn from sequences of replay."""

import dataclasses
import functools

from minding.configs.chains import Chain
from minding.configs.chains.off_policy import own_buffer, use_novelty
from minding.engine.buffers import Priority, ReplayBuffer, Sequences
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.engine.data.returns import nstep_errors
from minding.engine.errors import ConfigError
from minding.engine.types import Buffer, Policy
from minding.envs import make_collector_env, make_evaluator_env
from minding.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
    priority_calculator,
)
from minding.middleware.eps_greedy import explores_by_chance


def check(cfg: Config) -> None:
    """Refuses sequences that are longer than the buffer or than any episode, and strides that use some rows more often
    than others."""
    learn, other = cfg.policy.learn, cfg.policy.other
    _sequences(cfg).check(other.buffer_size)
    longest = cfg.env.spec.max_episode_steps
    if longest is not None and learn.length > longest:
        raise ConfigError(
            f"policy.learn.length={learn.length} exceeds the {longest} steps of the longest episode of "
            f"{cfg.env.env_id!r}: no sequence would ever be full; use policy.learn.length={longest} or less"
        )


def sequence_buffer(cfg: Config, policy: Policy) -> Buffer:
    """The configured buffer for the fields of the policy."""
    if (own := own_buffer(cfg, policy)) is not None:
        return own
    priority = None
    if _by_priority(cfg):
        settings = cfg.policy.other.priority
        priority = Priority(settings.alpha, settings.beta, settings.beta_steps, setting_at(settings, "eta"))
    learn = policy.learn_mode
    sequences = dataclasses.replace(_sequences(cfg), from_each_row=getattr(learn, "from_each_row", False))
    return ReplayBuffer(
        cfg.policy.other.buffer_size, learn.fields, priority=priority, sequences=sequences, images_once=True,
        seed=cfg.seed,
    )  # fmt: skip


def fill(task: Task, cfg: Config, policy: Policy) -> None:
    buffer, learn = sequence_buffer(cfg, policy), cfg.policy.learn
    task.use(interaction_evaluator(cfg, policy.eval_mode, make_evaluator_env(cfg), task=task))
    if explores_by_chance(cfg):
        task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, make_collector_env(cfg)))
    role = use_novelty(task, cfg)
    if _by_priority(cfg):
        errors = functools.partial(nstep_errors, n=learn.nstep, gamma=learn.gamma, rescale=learn.rescale)
        task.use(priority_calculator(errors), role=role)
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))


def _by_priority(cfg: Config) -> bool:
    return cfg.policy.other.replay == "prioritized"


def _sequences(cfg: Config) -> Sequences:
    stride = setting_at(cfg, "policy.other.priority.stride") if _by_priority(cfg) else 1
    return Sequences(cfg.policy.learn.length, cfg.policy.learn.burn_in, stride)


chain = Chain(
    fill, OnlineRLContext, check, ("policy.learn.length", "policy.other.buffer_size"), learner=OffPolicyLearner
)
