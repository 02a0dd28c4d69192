"""Rows of a team for its networks: the parts of the joint observation by name, and changes of shape (compiled).

A row is a step of the whole team, (R, M, ...) for R rows and M agents; networks of agents take (R M, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minding.engine.data.agents import ALIVE, STATE
from minding.engine.data.batch import Field
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.process.runtime import ms, ops
from minding.policies.ops import lean


def team_fields(spec: Mapping[str, Any]) -> dict[str, Field]:
    """The fields of a team's joint observation, by path: the leaves of all agents, `ALIVE` and, if learning uses it,
    the state, in this order."""
    agents, state = len(spec["agents"]["names"]), spec["agents"]["state"]
    own = observation_leaves(spec["observation"])
    fields = {leaf.path: Field((agents, *leaf.field.shape), leaf.field.dtype) for leaf in own}
    fields[ALIVE] = Field((agents,), "bool")
    leaves: list[Leaf] = [] if state is None else observation_leaves(state)
    return {**fields, **{leaf_name(STATE, leaf): leaf.field for leaf in leaves}}


class TeamPlaces(NamedTuple):
    """Indices of the parts of a joint observation among its leaves, see `team_fields`."""

    own: tuple[int, ...]
    alive: int
    state: tuple[int, ...]


def team_places(spec: Mapping[str, Any]) -> TeamPlaces:
    """The places of the parts in the order of `team_fields`."""
    paths = list(team_fields(spec))
    state = [path for path in paths if path.partition(".")[0] == STATE]
    own = [path for path in paths if path not in (ALIVE, *state)]
    return TeamPlaces(tuple(map(paths.index, own)), paths.index(ALIVE), tuple(map(paths.index, state)))


def team_parts(obs, places):
    """The parts of a joint observation by name.

    Args:
      obs: leaves of the joint observation.
      places: `TeamPlaces`.
    Returns:
      A dict with `own`, the leaves of all agents, (R, M, ...) each; `alive`, float32 (R, M), 1 for agents that act;
      `state`, the leaves of the state, (R, ...) each, empty if learning does not use the state.
    """
    own: Any = ()
    for k in places[0]:
        own = (*own, lean.item(obs, k))
    state: Any = ()
    for k in places[2]:
        state = (*state, lean.item(obs, k))
    return {"own": own, "alive": ops.Cast()(lean.item(obs, places[1]), ms.float32), "state": state}


def folded(leaves):
    """Leaves with one row per agent: (R, M, ...) -> (R M, ...)."""
    made: Any = ()
    for x in leaves:
        made = (*made, ops.Reshape()(x, (-1, *x.shape[2:])))
    return made


def of_agents(x, agents):
    """Repeats each number for all M agents: (R,) -> (R M,)."""
    return ops.Reshape()(ops.BroadcastTo((x.shape[0], agents))(ops.ExpandDims()(x, -1)), (-1,))


def one_hot(action, there, table):
    """Actions (R, M) as one-hot, (R, M, A), rows of the identity matrix `table`; 0 for absent agents."""
    return ops.Gather()(table, action, 0) * ops.ExpandDims()(there, -1)


def first_if_absent(action, there):
    """Actions (R, M) as (R M,), with action 0 for absent agents."""
    return ops.Reshape()(action * ops.Cast()(there, ms.int32), (-1,))
