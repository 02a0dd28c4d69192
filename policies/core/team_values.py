"""What policies of several agents have in common that act by action values and learn them from whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.buffers import SequenceBatch
from minding.engine.data.agents import ALIVE, STATE
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import Leaf, leaf_name, observation_leaves
from minding.engine.types import StateDict
from minding.policies.core.actors import Network
from minding.policies.core.agents import LastActionActor
from minding.policies.core.base import BasePolicy
from minding.policies.core.target_moves import target_moves
from minding.policies.core.update import Inputs
from minding.policies.networks.team_agents import AgentQNetwork, with_identity
from minding.policies.networks.team_q_learning import TeamQLearning


class TeamValuePolicy(BasePolicy):
    """Each agent takes the action of its highest value or, by chance `eps`, any that is legal.

    A row is a transition of the whole team. A subclass defines `_learner`.
    """

    _learn_steps = 0
    root: TeamQLearning

    def _learner(self, nets: tuple[AgentQNetwork, AgentQNetwork], rng: np.random.Generator) -> TeamQLearning:
        """Returns the root cell for an online and a target network of the agents, see `TeamQLearning`."""
        raise NotImplementedError

    def _network(self, rng: np.random.Generator) -> AgentQNetwork:
        return AgentQNetwork(self.spec, self.cfg.model, rng)

    def _root(self, net: Any, rng: np.random.Generator) -> TeamQLearning:
        return self._learner((net, self._network(rng)), rng)

    def _actor(self, network: Network, rng: np.random.Generator) -> LastActionActor:
        agents = len(self.spec["agents"]["names"])
        spec = {**self.spec, "observation": with_identity(self.spec["observation"], agents)}
        return LastActionActor(self.name, network, spec, rng)

    @property
    def acting_leaves(self) -> list[Leaf]:
        return observation_leaves(with_identity(self.spec["observation"], len(self.spec["agents"]["names"])))

    def obs_fields(self, prefix: str) -> dict[str, Field]:
        """Row fields of what all agents observe: their leaves, who is there, and the state where it is learned from."""
        team = self.spec["agents"]
        agents = len(team["names"])
        fields = {leaf_name(prefix, leaf): _of_each(leaf.field, agents) for leaf in self.leaves}
        fields[f"{prefix}.{ALIVE}"] = Field((agents,), "bool")
        state = [] if team["state"] is None else observation_leaves(team["state"])
        return {**fields, **{leaf_name(f"{prefix}.{STATE}", leaf): leaf.field for leaf in state}}

    @property
    def row_fields(self) -> dict[str, Field]:
        team = self.spec["agents"]
        reward = () if team["team_reward"] else (len(team["names"]),)
        return {
            **self.obs_fields("obs"),
            **self.obs_fields("next_obs"),
            "action": _of_each(self.action_field, len(team["names"])),
            "reward": Field(reward),
            "terminated": Field(),
        }

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        filled = batch.filled if isinstance(batch, SequenceBatch) else np.ones(batch.index.shape, np.bool_)
        steps = {"filled": filled.astype(np.float32)}
        tau = target_moves(self.cfg.learn.target, self._learn_steps, len(batch.index))
        self._learn_steps += len(batch.index)
        # As with one agent: most calls move nothing.
        if tau.any():
            steps["tau"] = tau
        return Inputs(steps, self.root.optim.rates(progress))

    def update_normalizers(self, batch: IndexedBatch) -> None:
        """Adds what the agents that were there have observed to the running moments, after learning."""
        rows = self.observed(batch) if self._normalizers else np.zeros(0, np.int64)
        if not len(rows):
            return
        there = batch.layout.read(batch.tables.host, f"obs.{ALIVE}", rows)
        own = {leaf_name("obs", leaf) for leaf in self.leaves}
        for field, normalizer in self._normalizers.values():
            values = batch.layout.read(batch.tables.host, field, rows)
            values = values[there] if field in own else values
            normalizer.update(values.reshape(len(values), -1))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])


def _of_each(field: Field, agents: int) -> Field:
    """The field of all agents."""
    return Field((agents, *field.shape), field.dtype)
