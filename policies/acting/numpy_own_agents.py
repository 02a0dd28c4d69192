"""Separate networks per agent in NumPy, see `acting.numpy_layers` and `networks.own_agents`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import Actor, Outputs


class AgentActors:
    """Observation leaves, including the agent numbers -> (scores or actions ``(B, A)``,); each row is computed by the
    network of its agent.

    Args:
      nets: one network per agent.
      place: index of the agent numbers among the leaves.
    """

    def __init__(self, nets: Sequence[Actor], place: int) -> None:
        self.nets, self.place = list(nets), place

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        own = list(leaves)
        agent = own.pop(self.place).reshape(-1)
        made: Array | None = None
        for m, net in enumerate(self.nets):
            rows = np.flatnonzero(agent == m)
            if len(rows):
                outputs = net([leaf[rows] for leaf in own])[0]
                if made is None:
                    made = np.empty((len(agent), outputs.shape[1]), outputs.dtype)
                made[rows] = outputs
        assert made is not None
        return (made,)
