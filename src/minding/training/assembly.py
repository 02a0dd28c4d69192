"""Builds a policy and fills a chain from a compiled configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minding.configs.chains import check_chain, get_chain
from minding.engine.blame import building
from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import chain_nodes
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.named import check_named, is_named
from minding.engine.data.episode import RECORDED
from minding.engine.lanes import LaneOptions
from minding.engine.lanes.options import check_transport
from minding.engine.process import runtime
from minding.engine.process.runtime import seeded
from minding.engine.run.loggers import check_loggers
from minding.engine.run.pool import ModelPool
from minding.engine.types import Policy
from minding.envs.making import check_backend
from minding.middleware import model_pool
from minding.policies import get_algorithm, get_policy_class
from minding.training.own import add_own, own_middleware

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


def make_policy(cfg: Config, modes: Sequence[str] = ("collect", "learn", "eval")) -> BasePolicy:
    """The configured policy."""
    name = cfg.policy.type
    kind, algorithm = get_policy_class(name), get_algorithm(name)
    if not is_named(name):
        return kind(cfg, modes, algorithm)
    with building(f"policy.type={name!r}: building it"):
        return kind(cfg, modes, algorithm)


def check_runnable(cfg: Config) -> None:
    """Refuses a configuration that cannot run here, before MindSpore is loaded and anything is written.

    Raises:
      CodeError: for user code that cannot be found.
      ConfigError: for an unknown chain (with the nearest name), for settings that the chain cannot run with, or for a
        backend that the environment does not have.
      DataError: if there are no recorded data to learn from, or they come from another environment or are too few.
      MissingExtraError: if the package of the backend, of a logger or of the transport is not installed.
      SetupError: if the device is not available.
    """
    check_chain(cfg)
    for section, key in ((cfg.policy.model, "model.encoder"), (cfg.policy.other, "other.replay")):
        name: Any = section.get(key.partition(".")[2])
        if name and (is_named(name) or key == "model.encoder"):
            check_named(name, f"policy.{key}")
    for entry in cfg.use:
        own_middleware(entry)
    runtime.check_device(cfg.device)
    if cfg.env.env_id != RECORDED:
        check_backend(cfg.env)
    check_loggers(cfg.run.loggers)
    if cfg.lanes.async_mode:
        options, staleness = LaneOptions.of(cfg.lanes), get_chain(cfg.chain).staleness
        check_transport(options)
        if staleness is not None:
            options.check_collectors(staleness)


def build(task: Task, cfg: Config, policy: Policy | None = None) -> Policy:
    """Builds the policy and fills the started `task` with the configured chain.

    Args:
      task: the started task.
      cfg: the compiled configuration.
      policy: the policy that acts and learns; None builds one.
    Returns:
      The policy.
    Raises:
      ConfigError, DataError, MissingExtraError, SetupError: as for `check_runnable`.
    """
    check_runnable(cfg)
    policy = make_policy(cfg) if policy is None else policy
    with seeded(cfg.seed, "chain"):
        get_chain(cfg.chain).fill(task, cfg, policy)
        for entry in cfg.use:
            add_own(task, cfg, entry)
        _add_pool(task, cfg, policy)
    return policy


def _add_pool(task: Task, cfg: Config, policy: Policy) -> None:
    """Adds the model pool if the settings ask for one and the chain has none: after the evaluators, before the rest."""
    if cfg.pool.freq is None or any(isinstance(member, model_pool) for member in task.members):
        return
    nodes = chain_nodes(task.members)
    first = next(node for node in nodes if any(leaf.role is not Role.EVALUATE for leaf in node.leaves()))
    task.use(model_pool(policy, ModelPool.of(cfg), cfg.pool.freq), before=first.name, optional=True)
