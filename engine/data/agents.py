"""Several agents in one environment: an axis M behind that of the environments.

The observation of N environments with M agents is a tree. Its leaves are ``(N, M, ...)``, the entries of each agent's
observation; one that is no dict is the entry `OBSERVATION`. Two entries do not belong to the single agent: `ALIVE`,
bool ``(N, M)``, says which agents act on this observation, and `STATE`, ``(N, ...)``, is the state of the whole
environment where it was asked for. Both are part of the observation because they travel, and are stored, with it.
"""

from __future__ import annotations

from typing import Any

from minding.engine.data import trees
from minding.engine.types import Array, Obs

ALIVE = "alive"
STATE = "state"


def alive_agents(obs: Obs) -> Array:
    """Which agents act on the observation, bool ``(..., M)``."""
    alive: Array = obs[ALIVE]
    return alive


def agents_view(obs: Obs) -> dict[str, Array]:
    """What the agents themselves see: path -> ``(..., M, ...)``, without `ALIVE` and `STATE`."""
    return {path: leaf for path, leaf in trees.leaves(trees.from_nested(obs)) if path not in (ALIVE, STATE)}


def fold(array: Array, lead: int = 2) -> Array:
    """Makes one axis of the first `lead`: ``(N, M, ...)`` becomes ``(N * M, ...)``."""
    return array.reshape(-1, *array.shape[lead:])


def num_agents(spec: Any) -> int | None:
    """M, from the description of an environment (see `envs.describe_env`); None for an environment of one agent."""
    agents = spec.get("agents")
    return None if agents is None else len(agents["names"])
