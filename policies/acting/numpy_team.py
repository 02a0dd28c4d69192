"""Networks of agents that share their weights, in NumPy; see `networks.team_agents`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.policies.acting.numpy_layers import MLP, ActionMask, Encoder, Linear, Outputs
from minding.policies.acting.numpy_recurrent import Memory


class AgentQNetwork:
    """Observation leaves, including the agent number, and memory rows -> (action values ``(B, A)``, new memory rows).

    Args:
      parts: (encoder, hidden layers, memory or None, values).
      agents: number of agents, M.
      place: index of the agent number among the leaves.
      mask: mask of the values if the observation has a mask, or None.
    """

    def __init__(
        self, parts: tuple[Encoder, MLP, Memory | None, Linear], agents: int, place: int, mask: ActionMask | None
    ) -> None:
        self.encoder, self.torso, self.memory, self.values = parts
        self.place, self.mask = place, mask
        self.kept = 0 if self.memory is None else self.memory.size
        self.agent_table = np.eye(agents, dtype=np.float32)
        self.action_table = np.eye(len(self.values.bias), dtype=np.float32)

    def __call__(self, leaves: Sequence[Array]) -> Outputs:
        *seen, rows = leaves
        agent = self.agent_table[seen.pop(self.place).reshape(-1)]
        kept, last = rows[:, : self.kept], rows[:, self.kept :]
        h = self.torso(np.concatenate([self.encoder(seen), last, agent], axis=1))
        if self.memory is not None:
            h, kept = self.memory(h, kept)
        q = self.values(h)
        if self.mask is not None:
            q = self.mask(q, seen)
        return q, np.concatenate([kept, self.action_table[q.argmax(axis=-1)]], axis=1)
