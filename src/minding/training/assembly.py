"""Builds a policy and fills a chain from a compiled configuration, with the user's own middleware."""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from minding.configs.chains import check_chain, get_chain
from minding.configs.checks import largest_sizes
from minding.engine.chain.middleware import Role
from minding.engine.chain.pipeline import chain_nodes
from minding.engine.chain.task import Task
from minding.engine.config.compiler import compile_config
from minding.engine.config.config import Config
from minding.engine.config.named import check_named, is_named, load_code, named_parts
from minding.engine.config.options import setting_at
from minding.engine.data.episode import RECORDED
from minding.engine.error_origin import building
from minding.engine.errors import ConfigError, MiddlewareError, add_note, nearest
from minding.engine.lanes import LaneOptions
from minding.engine.lanes.run import check_transport
from minding.engine.process import collectives, runtime
from minding.engine.process.runtime import computing, seeded
from minding.engine.run.loggers import check_loggers
from minding.engine.run.pool import ModelPool
from minding.engine.types import Policy
from minding.envs import config_schema
from minding.envs.making import check_backend
from minding.middleware import model_pool
from minding.policies import get_algorithm, get_policy_class

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy


@contextlib.contextmanager
def sizes_named(cfg: Config) -> Iterator[None]:
    """In the body of the ``with``, a lack of memory names the settings that are likely to cause it."""
    try:
        yield
    except MemoryError as error:
        key = "policy.other.buffer_size" if "buffer_size" in cfg.policy.other else "policy.collect.n_sample"
        fix, above = f"lower {key}={setting_at(cfg, key)}", largest_sizes(cfg)
        if cfg.chain == "offline" and cfg.policy.other.get("data_memory") == "device":
            fix = "set policy.other.data_memory=mapped, which leaves recorded data in their file"
        add_note(error, f"{fix}, or lower what is above its default: {above}" if above else fix)
        raise


@computing()
def make_policy(cfg: Config, modes: Sequence[str] = ("collect", "learn", "eval")) -> BasePolicy:
    name = cfg.policy.type
    kind, algorithm = get_policy_class(name), get_algorithm(name)
    if not is_named(name):
        return kind(cfg, modes, algorithm)
    with building(f"policy.type={name!r}: building it"):
        return kind(cfg, modes, algorithm)


def join_msrun(cfg: Config) -> bool:
    """Joins the other learners if MindSpore's ``msrun`` has started this process; returns whether it is the main one.
    In every other process this returns at the end of the run, and the process has nothing more to do."""
    size = collectives.started_by_msrun()
    if size is None or size == 1:
        return True
    if cfg.lanes.learners != size:
        raise ConfigError(f"msrun has started {size} processes for lanes.learners={cfg.lanes.learners}: use {size}")
    from minding.policies.core.prepare_process import prepare
    from minding.policies.learning import learners

    if not collectives.schedules():
        prepare(cfg)
    return learners.join_msrun(size)


def check_runnable(cfg: Config) -> None:
    """Refuses a configuration that cannot run here, before MindSpore is loaded and anything is written.

    Raises:
      CodeError: for user code that cannot be found.
      ConfigError: for what was set since the configuration was compiled and could not have been given then, for an
        unknown chain (with the nearest name), for settings that the chain cannot run with, or for a
        backend that the environment does not have.
      DataError: if there are no recorded data to learn from, or they come from another environment or are too few.
      MissingExtraError: if the package of the backend, of a logger or of the transport is not installed.
      SetupError: if the device is not available.
    """
    compile_config(cfg, get_algorithm(cfg.policy.type), env_schema=config_schema())
    check_chain(cfg)
    encoder: Any = cfg.policy.model.get("encoder")
    if encoder:
        # Minding's own encoder has no name.
        check_named(encoder, "policy.model.encoder")
    for key, name in named_parts(cfg):
        check_named(name, key)
    for entry in cfg.use:
        named_middleware(entry)
    runtime.check_device(cfg.device)
    if cfg.env.env_id != RECORDED:
        check_backend(cfg.env)
    check_loggers(cfg.run.loggers)
    if cfg.lanes.async_mode:
        options, learner = LaneOptions.of(cfg.lanes), get_chain(cfg.chain).learner
        check_transport(options)
        if learner is not None:
            options.check_collectors(learner)


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
            add_named(task, cfg, entry)
        _add_pool(task, cfg, policy)
    return policy


def _add_pool(task: Task, cfg: Config, policy: Policy) -> None:
    """Adds the model pool if the settings ask for one and the chain has none: after the evaluators, before the rest."""
    if cfg.pool.freq is None or any(isinstance(member, model_pool) for member in task.members):
        return
    nodes = chain_nodes(task.members)
    first = next(node for node in nodes if any(leaf.role is not Role.EVALUATE for leaf in node.leaves()))
    pool = model_pool(policy, ModelPool.of(cfg), cfg.pool.freq, unit=cfg.pool.unit)
    task.use(pool, before=first.name, optional=True)


_KEYS = ("call", "before", "role")
Given: TypeAlias = Callable[..., object] | Iterable[Callable[..., object]]
"""Type of the argument `use`: a middleware, a class or factory that makes a middleware, or several of these."""


def named_middleware(entry: Any) -> tuple[Any, str | None, Role | None]:
    """Reads an entry of `use`: the code that it names, imported, the member that it comes before, and its role."""
    section: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"call": entry}
    for key in section:
        if key not in _KEYS:
            raise ConfigError(f"use: unknown key {key!r}{nearest(key, _KEYS)}; expected {', '.join(_KEYS)}")
    if not is_named(section.get("call")):
        raise ConfigError(f"use: {entry!r}: expected 'module:Name', or {{call: 'module:Name', before: ..., role: ...}}")
    made = load_code(section["call"], "use")
    if not callable(made):
        raise ConfigError(f"use: {section['call']} is {made!r}: expected a middleware, or a function that makes one")
    try:
        role = None if section.get("role") is None else Role.of(section["role"])
    except MiddlewareError as error:
        raise ConfigError(f"use: {section['call']}: {error}") from None
    return made, section.get("before"), role


def add_named(task: Task, cfg: Config, entry: Any) -> None:
    """Adds an entry of `use` to the chain. A function whose argument is named `ctx` is a middleware itself. Anything
    else is a factory: it is called with the configuration if it takes an argument, and with the task if one of its
    arguments is named `task`."""
    named, before, role = named_middleware(entry)
    with building(f"use: {entry!r}: making it"):
        made = _make(named, task, cfg)
    task.use(made, before=before, role=role, optional=True)


def given_middleware(use: object) -> tuple[Any, ...]:
    """The middleware, or factories of middleware, in the argument `use` of a call, in order."""
    members = (use,) if callable(use) else use
    if isinstance(members, (str, Mapping)) or not isinstance(members, Iterable):
        raise ConfigError(f"use={use!r}: expected a middleware, a function that makes one, or a list of them")
    members = tuple(members)
    for each in members:
        if not callable(each):
            raise ConfigError(f"use: {each!r} cannot be called: expected a middleware, or a class that makes one")
    return members


def add_given(task: Task, cfg: Config, given: Any) -> None:
    """Adds an entry of the argument `use` of a call to the chain.

    A class, or a function whose return annotation is `Middleware`, is a factory, as in `add_named`; anything else is a
    middleware."""
    makes = inspect.isclass(given) or (inspect.isfunction(given) and _says_middleware(given))
    task.use(_make(given, task, cfg) if makes else given, optional=True)


def _says_middleware(function: Any) -> bool:
    returned = inspect.signature(function).return_annotation
    if isinstance(returned, str):
        return returned.split("[")[0].split(".")[-1] == "Middleware"
    return typing.get_origin(returned) is Callable


def _make(made: Any, task: Task, cfg: Config) -> Any:
    parameters = inspect.signature(made).parameters
    if inspect.isfunction(made) and [*parameters][:1] == ["ctx"]:
        return made
    needed = [each for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    own = [each for each in needed if each.name != "task"]
    arguments = (cfg,) if own else ()
    return made(*arguments, task=task) if "task" in parameters else made(*arguments)
