"""Several agents in one environment: an axis M after the axis of the environments.

The observation of N environments with M agents is a tree. Its leaves are ``(N, M, ...)``, the entries of each agent's
observation; an observation that is not a dict becomes the entry `OBSERVATION`. Two entries do not belong to a single
agent: `ALIVE`, bool ``(N, M)``, says which agents act on this observation, and `STATE`, ``(N, ...)``, is the state of
the whole environment where it was requested. Both are part of the observation because they are sent and stored with it.

Agents may have spaces of different sizes. The arrays have the size of the largest; `own_view` returns the observation
of one agent in its own size.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.observation import first_entries, observation_leaves
from minding.engine.errors import ShapeError
from minding.engine.types import Array, Obs, ObsLike, ObsTree

ALIVE = "alive"
STATE = "state"
IDENTITY = "agent_id"
"""Entry of one agent's observation for policies: the agent's number, see `with_identity`."""
CENTRAL = "central"
"""Name, among the fields of rows, of the input of a centralized value, see `central_view`."""


def alive_agents(obs: Obs) -> Array:
    """Which agents act on the observation, bool ``(..., M)``."""
    return cast(Array, cast(ObsTree, obs)[ALIVE])


def agents_view(obs: ObsLike) -> dict[str, Array]:
    """The observations of the agents themselves: path -> ``(..., M, ...)``, without `ALIVE` and `STATE`."""
    given = obs_trees.named(obs).items()
    return {path: leaf for path, leaf in given if path.partition(".")[0] not in (ALIVE, STATE)}


def central_view(obs: ObsLike) -> dict[str, Array]:
    """The inputs of a centralized value besides the agents' observations: path -> ``(..., M, ...)``. `IDENTITY` is the
    number of each agent, int32; `ALIVE` says whether it acts; `STATE` is the global state, the same for all agents, or
    ``state.<path>`` for each of its arrays. They come in this order. Do not write to them."""
    given = obs_trees.named(obs)
    alive = given[ALIVE]
    states = {path: leaf for path, leaf in given.items() if path.partition(".")[0] == STATE}
    if not states:
        raise ShapeError(
            f"the observation has no entry {STATE!r}, which a centralized value needs: set env.global_state=true"
        )
    place, axis = np.arange(alive.shape[-1], dtype=np.int32), alive.ndim - 1
    each = {
        path: np.broadcast_to(np.expand_dims(leaf, axis), (*alive.shape, *leaf.shape[axis:]))
        for path, leaf in states.items()
    }
    return {IDENTITY: np.broadcast_to(place, alive.shape), ALIVE: alive, **each}


def with_identity(space: Mapping[str, Any], agents: int) -> dict[str, Any]:
    """The observation space of an agent (see `envs.describe_env`), extended by the agent's number."""
    entry = {"kind": "discrete", "n": agents, "start": 0, "is_agent": True}
    return {**space, "spaces": {**space["spaces"], IDENTITY: entry}}


def has_identity(space: Mapping[str, Any]) -> bool:
    """Whether a space has been extended by `with_identity`; a single agent's observation may have an entry of the same
    name."""
    return space["kind"] == "dict" and "is_agent" in space["spaces"].get(IDENTITY, ())


def numbers_to_show(names: Sequence[str], opponents: Sequence[str] = ()) -> Array:
    """The number with which each agent acts, int64 (M,).

    In a league the policy learns for one side only, so the opponents act with that side's numbers.
    """
    numbers, other = np.arange(len(names)), np.isin(names, opponents)
    numbers[other] = np.resize(numbers[~other], other.sum())
    return numbers


def fold(array: Array, lead: int = 2) -> Array:
    """Merges the first `lead` axes into one: ``(N, M, ...)`` becomes ``(N * M, ...)``."""
    return array.reshape(-1, *array.shape[lead:])


def num_agents(spec: Any) -> int | None:
    """M, from the description of an environment (see `envs.describe_env`); None for an environment of one agent."""
    agents = spec.get("agents")
    return None if agents is None else len(agents["names"])


def own_view(obs: Obs, spec: Any, m: int) -> dict[str, Array]:
    """The observation of agent m, from leaves ``(..., M, ...)``, in its own sizes and named as in its own description:
    path -> ``(..., *own shape)``. A mask that it has only because others have more actions is left out."""
    view = agents_view(obs)
    seen = {}
    for leaf in observation_leaves(spec["agents"]["spaces"][m]["observation"]):
        array = view[leaf.path]
        if leaf.is_mask:
            common = spec["observation"]["spaces"][leaf.path]["counts"]
            seen[leaf.path] = array[..., m, own_entries(leaf.space["counts"], common)]
        else:
            part: Any = (..., m, *(slice(size) for size in leaf.field.shape))
            seen[leaf.path] = array[part]
    return seen


def own_entries(own: Sequence[int], common: Sequence[int]) -> Array:
    """The entries of one agent in a mask over the actions of all agents: int64 ``(sum(own),)``."""
    return np.concatenate([start + np.arange(count) for start, count in zip(first_entries(common), own)])
