"""Networks of COMA: what agents act by, and the critic that sees them all."""

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
    """Logits (B, A) of agents by what each of them has seen and done; otherwise an `AgentQNetwork`."""

    decision = Decision(0, "logits")


class CounterfactualCritic(nn.Cell):
    """Values (R M, A) of all actions of each of M agents in R steps of a team.

    Args:
      spec: description of the environment, with several agents and their global state.
      model: the `model` part of the policy's configuration.
      rng: draws the weights.
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
        # Each agent is to see what the others do.
        self.others = ms.Tensor(np.repeat(1.0 - place, self.actions, axis=1)[None])

    def construct(self, leaves, state, there, taken, last):
        """The values of the M agents of one step after another.

        Args:
          leaves: of the observations of single agents, (R M, ...) each; state: leaves of the state, (R, ...) each.
          there: float32 (R, M), which agents act.
          taken, last: float32 (R, M, A), their actions, and those before, as one-hot; 0 of agents that are not there.
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
        """(R, D), once for each agent: (R M, D)."""
        size = x.shape[1]
        wide = ops.BroadcastTo((x.shape[0], self.agents, size))(ops.ExpandDims()(x, 1))
        return ops.Reshape()(wide, (-1, size))
