"""Independent actors on a policy's network, and the acting weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minding.engine.data.agents import num_agents
from minding.engine.errors import CheckpointError
from minding.engine.process import runtime
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array
from minding.policies.acting.actors import Actor
from minding.policies.acting.agents import SharedActor
from minding.policies.core.acting import GraphNetwork
from minding.policies.core.factories import dumps, loads

if TYPE_CHECKING:
    from minding.policies.core.base import BasePolicy

_NET, _TARGET, _MOMENTS = "net.", "target.", "moments."


def own_actor(policy: BasePolicy) -> Actor | SharedActor:
    """An actor that follows the learning of a policy, with a memory and a random stream of its own.

    An actor that computes in NumPy shares only the memory of the parameters with the policy.
    """
    actor = policy.actors["eval"]
    if isinstance(actor.network, GraphNetwork):
        made = policy.new_actor("eval")
    else:
        weights = policy.acting_weights()
        made = loads(dumps(actor, weights), weights)
    made.rng = SeedStreams(policy.config.seed).generator("policy.own")
    made.reset()
    agents = num_agents(policy.spec)
    return made if agents is None else SharedActor(made, agents)


def acting_arrays(policy: BasePolicy) -> dict[str, Array]:
    """The arrays that acting needs, by name: the network's parameters and the moments of its observations."""
    arrays = {name: p.asnumpy().copy() for name, p in policy.params.items() if name.startswith(_NET)}
    for name, normalizer in policy.normalizers.items():
        if name.startswith(_NET):
            state = normalizer.moments.state_dict()
            arrays |= {f"{_MOMENTS}{name}/{key}": np.asarray(value) for key, value in state.items()}
    return arrays


def load_acting_arrays(policy: BasePolicy, arrays: Mapping[str, Array]) -> None:
    """Writes saved acting weights into a policy. Target networks get the same weights; all other state stays.

    Raises:
      CheckpointError: if the arrays belong to another network, or contain NaN or infinity.
    """
    known = acting_arrays(policy)
    for name in known.keys() ^ arrays.keys():
        which = "lacks" if name in known else "has the surplus"
        raise CheckpointError(f"{policy.name}: what was saved {which} {name!r}: it belongs to another network")
    for name, array in arrays.items():
        if array.shape != known[name].shape or array.dtype != known[name].dtype:
            raise CheckpointError(
                f"{policy.name}: {name!r} is {array.dtype} {array.shape} there and {known[name].dtype} "
                f"{known[name].shape} here: it belongs to another network"
            )
        if not np.isfinite(array).all():
            raise CheckpointError(f"{policy.name}: {name!r} holds NaN or infinity")
    for name, p in policy.params.items():
        source = _NET + name.removeprefix(_TARGET) if name.startswith(_TARGET) else name
        if source in arrays:
            runtime.assign(p, arrays[source])
    for name, normalizer in policy.normalizers.items():
        source = _NET + name.removeprefix(_TARGET) if name.startswith(_TARGET) else name
        if f"{_MOMENTS}{source}/mean" in arrays:
            state: dict[str, Any] = {
                key: arrays[f"{_MOMENTS}{source}/{key}"] for key in normalizer.moments.state_dict()
            }
            normalizer.moments.load_state_dict(state)
