"""The properties of an algorithm that are known without loading MindSpore."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from minding.engine.errors import SpaceError

_BY_A_WRAPPER = "give the action space finite bounds, for instance with a wrapper, and leave env.rescale_action on"


@dataclasses.dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm's entry in the table of all."""

    name: str
    """`policy.type`, and the name of its files."""
    class_name: str
    """Of its policy, in ``minding.policies.<name>`` unless `variant_of` says otherwise."""
    schema: Callable[[], dict[str, Any]]
    """Returns its keys in the section `policy`."""
    actions: tuple[str, ...]
    """Kinds of action space it can act in."""
    chain: str
    """Chain it runs in, one of `configs.chains`."""
    unit: str = "env_step"
    """What the clock of its runs counts, see `engine.chain.context.UNITS`."""
    unit_box: bool = False
    """Whether it acts in Boxes of [-1, 1] only."""
    agents: Literal["one", "any", "several"] = "one"
    """How many agents it learns for: one, any number of them, or a team of several."""
    variant_of: str = ""
    """Name of the algorithm whose policy it is, if it is one that differs in its settings only."""
    needs: tuple[str, ...] = ()
    """What it learns from and environments of several agents have where they are asked for it: switches of the section
    `env`, which it turns on."""

    def config_schema(self) -> dict[str, Any]:
        return self.schema()

    def check_actions(
        self, space: Mapping[str, Any], where: str = "the environment", *, limits: str = _BY_A_WRAPPER
    ) -> None:
        """Refuses an action space that the algorithm cannot act in.

        Args:
          space: description of the action space (see `envs.describe_env`).
          where: whose it is, for the message.
          limits: how limits of actions are given, for the message; a wrapper gives those of an environment.
        Raises:
          SpaceError: if it is of another kind, or actions would reach a part of it only or be clipped.
        """
        if space["kind"] not in self.actions:
            raise SpaceError(
                f"policy.type={self.name!r} acts in {' or '.join(self.actions)} action spaces, but {where} has a "
                f"{space['kind']} space: choose another algorithm"
            )
        if self.unit_box and space["kind"] == "box":
            self._check_limits(space, limits)

    def check_agents(self, spec: Mapping[str, Any], where: str = "the environment") -> None:
        """Refuses a number of agents that the algorithm does not learn for.

        Args:
          spec: description of the environment (see `envs.describe_env`).
          where: whose it is, for the message.
        Raises:
          SpaceError: it has several, and the algorithm takes one, or the other way round.
        """
        if "agents" not in spec and self.agents == "several":
            raise SpaceError(
                f"policy.type={self.name!r} learns for several agents, but {where} has one: choose another algorithm"
            )
        if "agents" in spec and self.agents == "one":
            raise SpaceError(
                f"policy.type={self.name!r} learns for one agent, but {where} has {len(spec['agents']['names'])}: "
                f"choose "
                "another algorithm, such as 'ppo', whose agents share their parameters"
            )

    def _check_limits(self, space: Mapping[str, Any], limits: str = _BY_A_WRAPPER) -> None:
        low, high = (np.asarray(space[side], np.float64) for side in ("low", "high"))
        if (low == -1.0).all() and (high == 1.0).all():
            return
        fix = "set env.rescale_action=true" if np.isfinite(low).all() and np.isfinite(high).all() else limits
        raise SpaceError(
            f"policy.type={self.name!r} acts in [-1, 1], but the action space has the bounds {space['low']} and "
            f"{space['high']}: {fix}"
        )
