"""Chains, one per file: a module that contains a `chain`. The setting `chain` of a configuration names one."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable

from minding.configs.datasets import check_collects
from minding.engine.chain.context import Context, OnlineRLContext
from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.config.named import is_named, load_code
from minding.engine.config.options import setting_at
from minding.engine.error_origin import building
from minding.engine.errors import ConfigError, nearest
from minding.engine.types import EpisodeEnd, Policy


@dataclasses.dataclass(frozen=True)
class Chain:
    """The steps of a run in each of its iterations."""

    fill: Callable[[Task, Config, Policy], None]
    """Appends the middleware to a started task."""
    context: type[Context]
    """Class of the context."""
    check: Callable[[Config], None] = lambda cfg: None
    """Refuses a configuration with which the chain cannot run, before anything is built or written."""
    settings: tuple[str, ...] = ()
    """Keys that the chain reads and that only some algorithms have, such as ``policy.other.buffer_size``."""
    evaluate: Callable[[Config, Policy, int, Callable[[], bool]], list[EpisodeEnd]] | None = None
    """Plays the final evaluation, given configuration, policy, number of episodes and a function that says whether to
    stop; None: episodes in the environment."""
    learner: object = None
    """The middleware that learns, whose `staleness` is the default of ``lanes.max_staleness``; None: the number of
    collectors is checked when the chain is built."""


CHAINS: tuple[str, ...] = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Names of all chains, from the files of this folder; no chain is imported."""


def get_chain(name: str) -> Chain:
    """The chain of a name."""
    if is_named(name):
        return _own_chain(name)
    check_known(name)
    chain: Chain = importlib.import_module(f"minding.configs.chains.{name}").chain
    return chain


def check_known(name: str) -> None:
    """Refuses a name that is neither that of a chain nor ``module:Name``; imports nothing."""
    if name not in CHAINS and not is_named(name):
        hint = nearest(str(name), CHAINS)
        raise ConfigError(f"chain={name!r} is unknown{hint}; known: {', '.join(CHAINS)}")


def _own_chain(name: str) -> Chain:
    made = load_code(name, "chain")
    with building(f"chain={name!r}: making it"):
        chain = made() if callable(made) else made
    if not isinstance(chain, Chain):
        raise ConfigError(
            f"chain={name!r}: expected a function that returns a minding.configs.chains.Chain, got {chain!r}"
        )
    return chain


def check_chain(cfg: Config) -> None:
    """Refuses a configuration with which its chain cannot run."""
    chain = get_chain(cfg.chain)
    for key in chain.settings:
        if setting_at(cfg, key, ...) is ...:
            raise ConfigError(
                f"chain={cfg.chain!r} with policy.type={cfg.policy.type!r}: the chain reads {key}, which the "
                "algorithm does not have; leave chain out for the algorithm's own"
            )
    check_collects(cfg, collects=issubclass(chain.context, OnlineRLContext))
    chain.check(cfg)
