"""Settings of the algorithms, importable without MindSpore.

Each family has a module with a class of settings per algorithm and a table `ALGORITHMS`.

This module has the properties of an algorithm that are known without loading MindSpore.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np

from minding.engine.config.config import PolicySection
from minding.engine.config.options import setting_at
from minding.engine.config.space import Choice, Range
from minding.engine.data.action_trees import COMPOSITE
from minding.engine.errors import ConfigError, SpaceError
from minding.policies.settings import other_libraries

SINGLE_ACTIONS = ("discrete", "multi_discrete", "box")
"""The kinds of action space without those that join choices and numbers."""
ANY_ACTIONS = (*SINGLE_ACTIONS, COMPOSITE)
"""All kinds of action space."""
DISCRETE, BOX, EITHER = ("discrete",), ("box",), ("discrete", "box")
"""Kinds of action space of algorithms for one or two of them."""
SEARCHED: Mapping[str, Range | Choice] = {
    "learn.learning_rate": Range(1e-5, 1e-2, log=True),
    "learn.gamma": Choice.of(0.9, 0.95, 0.98, 0.99, 0.995),
    "model.hidden": Choice.of([64], [64, 64], [128, 128], [256, 256]),
    # Learning from rollouts.
    "learn.n_epoch": Choice.of(2, 4, 8, 10),
    "learn.n_minibatch": Choice.of(2, 4, 8, 16),
    "learn.gae_lambda": Choice.of(0.8, 0.9, 0.95, 0.98, 1.0),
    "learn.clip_ratio": Choice.of(0.1, 0.2, 0.3),
    "learn.entropy_weight": Range(1e-5, 0.1, log=True),
    # Learning from replay.
    "learn.batch_size": Choice.of(64, 128, 256),
    "learn.tau": Range(0.001, 0.05, log=True),
    "learn.target.freq": Choice.of(50, 100, 250, 500, 1000),
    "collect.noise.sigma": Range(0.05, 0.5),
}
"""Values of a hyperparameter search by setting, in the section `policy`; a search over an algorithm uses only settings
that the algorithm has."""
_BY_A_WRAPPER = "give the action space finite bounds, for instance with a wrapper, and leave env.rescale_action on"


@dataclasses.dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm's entry in the table of all algorithms."""

    name: str
    """Value of `policy.type`, and name of the files of policy, test and page."""
    class_name: str
    """Name of the policy class, in ``minding.policies.<name>`` unless `variant_of` is set."""
    settings: type[PolicySection]
    """Class of the algorithm's settings, the section `policy`; its docstring says what a variant is."""
    actions: tuple[str, ...]
    """Kinds of action space in which the algorithm can act."""
    chain: str
    """Chain in which the algorithm runs, one of `configs.chains`."""
    unit: str = "env_step"
    """Unit of the clock of its runs, see `engine.chain.context.UNITS`."""
    unit_box: bool = False
    """Whether Box actions, and the numbers of composite ones, have to lie in [-1, 1]."""
    choices: int | None = None
    """Number of choices of the composite actions in which the algorithm can act; None: any."""
    agents: Literal["one", "any", "several"] = "one"
    """Number of agents for which the algorithm learns: one, any number, or a team of several."""
    own_networks: bool = False
    """Whether each agent has a network of its own, which needs no `env.agent_ids`."""
    several_learners: bool = False
    """Whether several learners may divide minibatches: the loss is a mean over rows (`Optimizer.of_all_learners`)."""
    variant_of: str = ""
    """Name of the algorithm whose policy this algorithm uses, if only its settings differ."""
    needs: tuple[str, ...] = ()
    """Switches of the section `env` that the algorithm turns on, because it learns from values that environments with
    several agents only give on request."""
    env: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Defaults of the section `env` that are other ones with the algorithm, by key."""
    searched: Mapping[str, Range | Choice] = dataclasses.field(default_factory=dict)
    """Values of a hyperparameter search that differ from `SEARCHED`, by setting."""

    def config_schema(self) -> dict[str, Any]:
        """The settings of the section `policy` besides its type, see `Section.options`."""
        return self.settings.options()

    def setting_hint(self, name: str, known: Sequence[str]) -> str:
        """See `engine.config.compiler.Hint`: names of other libraries have replacements here."""
        return other_libraries.setting_hint(name, known)

    def search_space(self) -> dict[str, Range | Choice]:
        """The values of a hyperparameter search, by the full path of the setting."""
        keys, known = self.config_schema(), {**SEARCHED, **self.searched}
        return {f"policy.{path}": values for path, values in known.items() if setting_at(keys, path) is not None}

    def check_actions(
        self, space: Mapping[str, Any], where: str = "the environment", *, limits: str = _BY_A_WRAPPER
    ) -> None:
        """Refuses an action space (see `envs.describe_env`) of another kind, or with limits that actions in [-1, 1]
        would not cover or beyond which they would be clipped; `where` and `limits` are, for the message, the owner of
        the space and how to set limits."""
        if space["kind"] not in self.actions:
            raise SpaceError(
                f"policy.type={self.name!r} acts in {' or '.join(self.actions)} action spaces, but {where} has a "
                f"{space['kind']} space: choose another algorithm, such as {self._acting_in(space['kind'])}"
            )
        if self.choices is not None and len(space["nvec"]) != self.choices:
            raise SpaceError(
                f"policy.type={self.name!r} acts with {self.choices} choice beside numbers, but {where} has "
                f"{len(space['nvec'])}: choose another algorithm, such as 'ppo'"
            )
        if self.unit_box and space["kind"] in ("box", COMPOSITE):
            self._check_limits(space, limits)

    def check_agents(self, spec: Mapping[str, Any], where: str = "the environment") -> None:
        """Refuses a number of agents (see `envs.describe_env`) that the algorithm does not learn for; `where`: owner of
        the description, for the message."""
        if "agents" not in spec and self.agents == "several":
            raise SpaceError(
                f"policy.type={self.name!r} learns for several agents, but {where} has one: choose another algorithm, "
                "such as 'ppo'"
            )
        if "agents" in spec and self.agents == "one":
            raise SpaceError(
                f"policy.type={self.name!r} learns for one agent, but {where} has {len(spec['agents']['names'])}: "
                "choose another algorithm, such as 'ppo', whose agents share their parameters"
            )

    def check_learners(self, count: int) -> None:
        """Refuses several learners for an algorithm whose minibatches cannot be divided."""
        if count > 1 and not self.several_learners:
            raise ConfigError(f"lanes.learners={count}: {self.name} learns in one process only; use 1")

    def _acting_in(self, kind: str) -> str:
        """The algorithms that act in any space of this kind and run in the same chain; if there are none, those for any
        number of agents."""
        known = [entry for family in families() for entry in family.ALGORITHMS]
        fit = [entry for entry in known if kind in entry.actions and entry.choices is None]
        alike = [entry.name for entry in fit if entry.chain == self.chain and entry.agents in (self.agents, "any")]
        return ", ".join(sorted(alike or [entry.name for entry in fit if entry.agents == "any"]))

    def _check_limits(self, space: Mapping[str, Any], limits: str = _BY_A_WRAPPER) -> None:
        low, high = (np.asarray(space[side], np.float64) for side in ("low", "high"))
        if (low == -1.0).all() and (high == 1.0).all():
            return
        fix = "set env.rescale_action=true" if np.isfinite(low).all() and np.isfinite(high).all() else limits
        raise SpaceError(
            f"policy.type={self.name!r} acts in [-1, 1], but the action space has the bounds {space['low']} and "
            f"{space['high']}: {fix}"
        )


def families() -> list[ModuleType]:
    """The modules of this folder that have a table `ALGORITHMS`."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return [module for module in modules if hasattr(module, "ALGORITHMS")]
