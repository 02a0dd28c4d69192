"""The base of policies of several agents that act by action values and learn them from whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.buffers import SequenceBatch
from minding.engine.data.batch import IndexedBatch
from minding.engine.types import StateDict
from minding.policies.acting.actors import GreedyActor, Network
from minding.policies.core.team import TeamPolicy
from minding.policies.learning.target_moves import target_moves
from minding.policies.learning.team_q_learning import TeamQLearning
from minding.policies.learning.update import Inputs
from minding.policies.networks.team_agents import AgentQNetwork


class TeamValuePolicy(TeamPolicy):
    """Each agent takes the action of its highest value or, with probability `eps`, a random legal one.

    A row is a transition of the whole team. A subclass defines `make_learner`.
    """

    sequences = True
    _learn_steps = 0
    root: TeamQLearning

    def make_learner(self, nets: tuple[AgentQNetwork, AgentQNetwork], rng: np.random.Generator) -> TeamQLearning:
        """Returns the root cell for an online and a target network of the agents, see `TeamQLearning`."""
        raise NotImplementedError

    def make_network(self, rng: np.random.Generator) -> AgentQNetwork:
        return AgentQNetwork(self.spec, self.cfg.model, rng)

    def make_root(self, net: Any, rng: np.random.Generator) -> TeamQLearning:
        return self.make_learner((net, self.make_network(rng)), rng)

    def make_actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        actor = GreedyActor(self.name, network, self.acting_spec, rng)
        actor.remembers_action = True
        return actor

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        filled = batch.filled if isinstance(batch, SequenceBatch) else np.ones(batch.index.shape, np.bool_)
        steps = {"filled": filled.astype(np.float32)}
        tau = target_moves(self.cfg.learn.target, self._learn_steps, len(batch.index))
        self._learn_steps += len(batch.index)
        # As in `ActionValuePolicy`, most calls do not move the target.
        if tau.any():
            steps["tau"] = tau
        return Inputs(steps, self.root.optim.rates(progress))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
