"""Separate networks for each agent of a team."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agents import IDENTITY
from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting.numpy_own_agents import AgentActors as HostAgentActors
from minding.policies.networks.actor_critic import DeterministicActor, PolicyNetwork
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.layers import MLP, ScalarLinear
from minding.policies.networks.team_agents import with_identity
from minding.policies.ops import lean


class AgentActors(nn.Cell):
    """A separate actor for each agent, which returns logits of discrete actions or continuous actions in [-1, 1].

    Takes the leaves of the observations of single agents, including `IDENTITY`, and returns ((B, A),).

    Args:
      spec: description of the environment (see `envs.describe_env`), of several agents.
      model: the `model` part of the policy's configuration.
      rng: random generator for the initial weights.
    """

    shared_outputs = ()
    memory_size = 0

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        kind = DeterministicActor if spec["action"]["kind"] == "box" else PolicyNetwork
        agents = len(spec["agents"]["names"])
        self.nets = nn.CellList([kind(spec, model, rng) for _ in range(agents)])
        self.decision = self.nets[0].decision
        self.num_leaves = len(observation_leaves(spec["observation"]))
        leaves = observation_leaves(with_identity(spec["observation"], agents))
        self.place = [leaf.path for leaf in leaves].index(IDENTITY)
        self.table = ms.Tensor(np.eye(agents, dtype=np.float32))

    def construct(self, leaves):
        own = (*leaves[: self.place], *leaves[self.place + 1 :])
        who = ops.Gather()(self.table, ops.Reshape()(lean.item(leaves, self.place), (-1,)), 0)
        chosen = 0.0
        for m in range(len(self.nets)):
            chosen = chosen + who[:, m : m + 1] * lean.item(self.nets[m](own), 0)
        return (chosen,)

    def of_all(self, leaves):
        """The output of each agent's actor for its own observation: float32 (B, M, A), for leaves (B, M, ...)."""
        made: Any = ()
        for m in range(len(self.nets)):
            made = (*made, lean.item(self.nets[m](of_agent(leaves, m)), 0))
        return ops.Stack(1)(made)

    def host(self) -> HostAgentActors:
        return HostAgentActors([net.host() for net in self.nets], self.place)


class AgentCritic(nn.Cell):
    """Value of the observations and actions of agents for one of them: float32 (B,).

    Args:
      spec, model, rng: see `AgentActors`.
      seen: numbers of the agents whose observations and actions the critic takes.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, seen: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.seen = seen
        action = spec["action"]
        size = action["n"] if action["kind"] == "discrete" else math.prod(action["shape"])
        self.torso = MLP.of(len(seen) * (self.encoder.out_features + size), model, None, rng)
        self.value = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, actions, leaves):
        """The value, float32 (B,).

        Args:
          actions: actions of all agents, float32 (B, M, A).
          leaves: leaves of all agents' observations, (B, M, ...) each.
        """
        parts: Any = ()
        for m in self.seen:
            parts = (*parts, self.encoder(of_agent(leaves, m)), lean.item(of_agent((actions,), m), 0))
        return self.value(self.torso(ops.Concat(-1)(parts)))


class AgentCritics(nn.Cell):
    """An `AgentCritic` for each agent.

    Args:
      spec, model, rng: see `AgentActors`.
      central: whether each critic sees all agents, or only its own.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator, central: bool) -> None:
        super().__init__()
        count = len(spec["agents"]["names"])
        seen = [tuple(range(count)) if central else (m,) for m in range(count)]
        self.nets = nn.CellList([AgentCritic(spec, model, rng, agents) for agents in seen])
        self.is_own = tuple(ms.Tensor(row.reshape(1, count, 1)) for row in np.eye(count, dtype=np.bool_))

    def construct(self, actions, leaves):
        """The values of all agents, float32 (B, M); for the arguments see `AgentCritic`."""
        made: Any = ()
        for m in range(len(self.nets)):
            made = (*made, self.nets[m](actions, leaves))
        return ops.Stack(1)(made)

    def of_own_actions(self, actions, own, leaves):
        """The values, float32 (B, M), of each agent if it acts as in `own` and the others as in `actions`.

        Args:
          actions, own: actions of all agents, float32 (B, M, A).
          leaves: leaves of all agents' observations, (B, M, ...) each.
        """
        made: Any = ()
        for m in range(len(self.nets)):
            is_own = ops.BroadcastTo(actions.shape)(lean.item(self.is_own, m))
            made = (*made, self.nets[m](ops.Select()(is_own, own, actions), leaves))
        return ops.Stack(1)(made)


def of_agent(leaves, m):
    """The leaves of agent m, (B, ...) each, from leaves of all agents, (B, M, ...) each."""
    parts: Any = ()
    for x in leaves:
        rest = x.shape[2:]
        begin: Any = (0, m)
        for _ in rest:
            begin = (*begin, 0)
        one = ops.Slice()(x, begin, (x.shape[0], 1, *rest))
        parts = (*parts, ops.Reshape()(one, (x.shape[0], *rest)))
    return parts
