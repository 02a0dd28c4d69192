"""Networks of COMA: the agents' policy, and the critic that sees all agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agents import STATE
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import ObsEncoder, make_encoder
from minding.policies.networks.layers import MLP, Linear
from minding.policies.networks.team_agents import AgentQNetwork


class AgentPolicy(AgentQNetwork):
    """An `AgentQNetwork` whose outputs (B, A) are logits of the agents' policies."""

    decision = Decision(0, "logits")


class CounterfactualCritic(nn.Cell):
    """Values (R M, A) of all A actions of each of the M agents, in R steps of a team.

    Args:
      spec: description of the environment, with several agents and their global state.
      model: the `model` part of the policy's configuration.
      rng: random generator for the initial weights.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.agents, self.actions = len(spec["agents"]["names"]), spec["action"]["n"]
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.state = ObsEncoder(spec["agents"]["state"], model, rng, f"obs.{STATE}") if model.critic_state else None
        joint = self.agents * self.actions
        size = self.encoder.out_features + 2 * joint + self.agents
        if self.state is not None:
            size += self.state.out_features
        self.torso = MLP(size, model.critic_hidden, model.activation, None, rng, model.norm)
        self.values = Linear(self.torso.out_features, self.actions, None, rng)
        place = np.eye(self.agents, dtype=np.float32)
        self.place = ms.Tensor(place)
        # Masks the agent's own action, so that each agent's input has only the actions of the others.
        self.others = ms.Tensor(np.repeat(1.0 - place, self.actions, axis=1)[None])

    def construct(self, leaves, state, there, taken, last):
        """The values (R M, A), ordered by step and then by agent.

        Args:
          leaves: leaves of the observations of single agents, (R M, ...) each.
          state: leaves of the state, (R, ...) each.
          there: float32 (R, M), 1 for agents that act, else 0.
          taken, last: float32 (R, M, A), the agents' actions in this and in the last step as one-hot; 0 for absent
            agents.
        """
        count, joint = there.shape[0], self.agents * self.actions
        seen = self.encoder(leaves) * ops.Reshape()(there, (-1, 1))
        others = ops.Reshape()(taken, (count, 1, joint)) * self.others
        parts: Any = (seen,)
        if self.state is not None:
            parts = (*parts, self.of_each(self.state(state)))
        parts = (
            *parts,
            ops.Reshape()(others, (-1, joint)),
            self.of_each(ops.Reshape()(last, (count, joint))),
            ops.Tile()(self.place, (count, 1)),
        )
        return self.values(self.torso(ops.Concat(-1)(parts)))

    def of_each(self, x):
        """Repeats each row for all M agents: (R, D) -> (R M, D)."""
        size = x.shape[1]
        wide = ops.BroadcastTo((x.shape[0], self.agents, size))(ops.ExpandDims()(x, 1))
        return ops.Reshape()(wide, (-1, size))
