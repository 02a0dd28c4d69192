"""Networks of agents that act separately and share their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agents import IDENTITY
from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_layers as numpy_forms
from minding.policies.acting.numpy_team import AgentQNetwork as HostAgentQNetwork
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.layers import MLP, Linear
from minding.policies.networks.masks import action_mask
from minding.policies.networks.recurrent import MEMORIES


class AgentQNetwork(nn.Cell):
    """Action values (B, A) of agents, each from the observations and actions of that agent so far (Rashid et al., 2018,
    https://arxiv.org/abs/1803.11485, section 4.1).

        x = [o, one-hot of the last action, one-hot of the agent],   h' = GRU(MLP(x), h),   Q = W h' + b

    An LSTM may take the place of the GRU; without memory, h' = MLP(x).

    Takes the leaves of the observation, including `IDENTITY`, and as the last leaf the memory rows, float32 (B, S + A):
    the state of the GRU or LSTM and the last action as one-hot, all zeros at the start of an episode. Returns the
    values and the new memory rows, which contain the action of the highest value; an actor that takes another action
    overwrites it. Values of actions that the mask forbids are `ILLEGAL`.

    Args:
      spec: description of an environment with several agents (see `envs.describe_env`).
      model: the `model` part of the policy's configuration.
      rng: random generator for the initial weights.
    """

    shared_outputs = ()
    noise_size = 0
    decision = Decision(0, "q_values")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.agents, self.actions = len(spec["agents"]["names"]), spec["action"]["n"]
        self.encoder = make_encoder(spec["observation"], model, rng)
        features = self.encoder.out_features + self.actions + self.agents
        self.torso = MLP.of(features, model, None, rng)
        # Algorithms without this setting use a GRU.
        kind = model.get("memory", "gru")
        self.memory: Any = None if kind == "none" else MEMORIES[kind](self.torso.out_features, model.memory_dim, rng)
        remembers = self.torso if self.memory is None else self.memory
        self.values = Linear(remembers.out_features, self.actions, None, rng)
        self.kept = 0 if self.memory is None else self.memory.size
        self.mask = action_mask(spec["observation"])
        self.place = [leaf.path for leaf in observation_leaves(with_identity(spec["observation"], self.agents))].index(
            IDENTITY
        )
        self.action_table, self.agent_table = (
            ms.Tensor(np.eye(count, dtype=np.float32)) for count in (self.actions, self.agents)
        )
        self.no_action, self.no_memory = (
            ms.Tensor(np.zeros((1, size), np.float32)) for size in (self.actions, max(self.kept, 1))
        )

    @property
    def memory_size(self) -> int:
        """Number of values in the memory of an agent, S + A."""
        return self.kept + self.actions

    def construct(self, obs):
        leaves, rows = (*obs[: self.place], *obs[self.place + 1 : -1]), obs[-1]
        agent = ops.gather(self.agent_table, obs[self.place].reshape((-1,)), 0)
        kept: Any = ()
        h = self.features(leaves, rows[:, self.kept :], agent)
        if self.memory is not None:
            h, rows = self.memory(h, rows[:, : self.kept])
            kept = (rows,)
        q = self.decided(h, leaves)
        return q, ops.Concat(-1)((*kept, ops.gather(self.action_table, ops.Argmax(-1)(q), 0)))

    def unroll(self, leaves, action):
        """Action values of whole episodes.

        Args:
          leaves: leaves of the observations without `IDENTITY`, (T B M, ...) each, for T steps, B episodes and M
            agents.
          action: int32 ((T - 1) B M,), actions taken after all observations but the last.

        Returns:
          Action values, float32 (T B M, A).
        """
        total, done = leaves[0].shape[0], action.shape[0]
        count = total - done
        first = ops.Tile()(self.no_action, (count, 1))
        last = ops.Concat(0)((first, ops.gather(self.action_table, action, 0)))
        agent = ops.Tile()(self.agent_table, (total // self.agents, 1))
        h = self.features(leaves, last, agent)
        if self.memory is not None:
            begun = ops.Reshape()(ops.Slice()(ops.ZerosLike()(last), (0, 0), (total, 1)), (total,))
            h = self.memory.unroll(h, ops.Tile()(self.no_memory, (count, 1)), begun)
        return self.decided(h, leaves)

    def features(self, leaves, action, agent):
        """The last hidden layer (B, F); `action` (B, A) and `agent` (B, M) as one-hot."""
        return self.torso(ops.Concat(-1)((self.encoder(leaves), action, agent)))

    def decided(self, h, leaves):
        q = self.values(h)
        return q if self.mask is None else self.mask(q, leaves)

    def host(self) -> HostAgentQNetwork:
        mask: numpy_forms.ActionMask | None = None if self.mask is None else self.mask.host()
        memory = None if self.memory is None else self.memory.host()
        parts = (self.encoder.host(), self.torso.host(), memory, self.values.host())
        return HostAgentQNetwork(parts, self.agents, self.place, mask)


def with_identity(space: Mapping[str, Any], agents: int) -> dict[str, Any]:
    """The observation space of an agent (see `envs.describe_env`), extended by the agent number."""
    entry = {"kind": "discrete", "n": agents, "start": 0}
    return {**space, "spaces": {**space["spaces"], IDENTITY: entry}}
