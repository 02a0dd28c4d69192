"""Algorithms. Adding one: a file here, its keys in `schemas.py`, and a line in the table below."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.errors import ConfigError, SpaceError, nearest
from minding.policies import schemas


@dataclasses.dataclass(frozen=True, slots=True)
class Algorithm:
    """What is known of an algorithm without loading MindSpore."""

    name: str
    class_name: str
    schema: Callable[[], dict[str, Any]]
    actions: tuple[str, ...]
    """Kinds of action space it can act in."""
    chain: str
    """Chain it runs in, one of `configs.chains`."""

    unit_box: bool = False
    """Whether it acts in Boxes of [-1, 1] only."""

    def check_limits(self, space: Mapping[str, Any]) -> None:
        """Checks the limits of a Box of actions.

        Args:
          space: description of the action space (see `envs.describe_env`).
        Raises:
          SpaceError: if its actions would reach a part of the space only, or be clipped.
        """
        if not self.unit_box or space["kind"] != "box":
            return
        low, high = (np.asarray(space[side], np.float64) for side in ("low", "high"))
        if (low == -1.0).all() and (high == 1.0).all():
            return
        fix = (
            "set env.rescale_action=true"
            if np.isfinite(low).all() and np.isfinite(high).all()
            else "give the action space finite bounds, for instance with a wrapper, and leave env.rescale_action on"
        )
        raise SpaceError(
            f"policy.type={self.name!r} acts in [-1, 1], the action space has the bounds {space['low']} and "
            f"{space['high']}: {fix}"
        )

    def config_schema(self) -> dict[str, Any]:
        return self.schema()


ALGORITHMS = {
    a.name: a
    for a in (
        Algorithm("a3c", "A3C", schemas.a3c, ("discrete", "multi_discrete", "box"), "single_step"),
        Algorithm("dqn", "DQN", schemas.dqn, ("discrete",), "off_policy"),
        Algorithm("impala", "IMPALA", schemas.impala, ("discrete", "multi_discrete", "box"), "trajectory"),
        Algorithm("ppo", "PPO", schemas.ppo, ("discrete", "multi_discrete", "box"), "on_policy"),
        Algorithm("sac", "SAC", schemas.sac, ("box",), "off_policy", unit_box=True),
    )
}


def get_algorithm(name: str) -> Algorithm:
    """The table's entry.

    Raises:
      ConfigError: if there is none; names the nearest.
    """
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        hint = nearest(name, ALGORITHMS) or "."
        raise ConfigError(f"policy.type: unknown algorithm {name!r}{hint} Expected one of {known}")
    return ALGORITHMS[name]


def get_policy_class(name: str) -> Any:
    """The policy class of an algorithm; loads MindSpore, but leaves its settings to the first policy that is built."""
    algorithm = get_algorithm(name)
    return getattr(importlib.import_module(f"minding.policies.{name}"), algorithm.class_name)


def __getattr__(name: str) -> Any:
    for algorithm in ALGORITHMS.values():
        if algorithm.class_name == name:
            return get_policy_class(algorithm.name)
    raise AttributeError(f"module 'minding.policies' has no attribute {name!r}")
