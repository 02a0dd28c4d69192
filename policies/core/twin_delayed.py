"""The base of policies with a deterministic actor, twin critics and delayed updates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.types import StateDict
from minding.policies.acting.actors import Network, NoisyActor
from minding.policies.acting.noise import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.target import equalize
from minding.policies.learning.twin_delayed import TwinDelayed
from minding.policies.learning.update import Inputs
from minding.policies.networks.actor_critic import DeterministicActor, TwinCritics


class TwinDelayedPolicy(BasePolicy):
    """Acts deterministically, explores with noise, and learns from single transitions.

    A subclass defines `make_learner`.
    """

    sequences = False
    root: TwinDelayed
    _learn_steps = 0

    def make_learner(self, actors: tuple[Any, Any], critics: tuple[Any, Any]) -> TwinDelayed:
        """Returns the root cell of two actors and two pairs of critics, see `TwinDelayed`."""
        raise NotImplementedError

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    def make_network(self, rng: np.random.Generator) -> DeterministicActor:
        return DeterministicActor(self.spec, self.cfg.model, rng)

    def make_root(self, net: Any, rng: np.random.Generator) -> TwinDelayed:
        target_net = self.make_network(rng)
        critics, target_critics = (TwinCritics(self.spec, self.cfg.model, rng) for _ in range(2))
        root = self.make_learner((net, target_net), (critics, target_critics))
        equalize(net, target_net)
        equalize(critics, target_critics)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> NoisyActor:
        noise = make_noise(self.cfg.collect.noise, self.action_size, self.name)
        return NoisyActor(self.name, network, self.spec, rng, noise)

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, count = self.cfg.learn, len(batch.index)
        noise = self.learn_rng.standard_normal((*batch.index.shape, self.action_size), dtype=np.float32)
        limit = np.float32(learn.noise_clip)
        steps = {"noise": np.clip(np.float32(learn.target_noise) * noise, -limit, limit)}
        constants = self.root.optim.rates(progress)
        due = (self._learn_steps + 1 + np.arange(count)) % learn.policy_delay == 0
        self._learn_steps += count
        # The graph has a branch for the actor's step only if some steps of the call are due and others are not.
        if due.any():
            constants["tau"] = float(learn.tau)
            if not due.all():
                steps["due"] = due.astype(np.float32)
        return Inputs(steps, constants, dict.fromkeys(self.root.of_actor, int(due.sum())))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
