"""The base of policies that act by action values and learn them from replay."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.buffers.base import buffer_class
from minding.engine.buffers.selectors import uses_priority
from minding.engine.config.named import is_named
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.types import Array, LearnOutput, StateDict
from minding.policies.acting.actors import GreedyActor, Network
from minding.policies.core.base import BasePolicy
from minding.policies.learning.q_learning import CLIPPED, QLearning
from minding.policies.learning.target import equalize
from minding.policies.learning.target_moves import target_moves
from minding.policies.learning.update import Inputs

_log = logging.getLogger("minding.policies")

# Largest share of the targets' probability that may lie beyond the support before a warning. The arbitrary values of a
# fresh network put a few per cent there.
_MUCH_CLIPPED = 0.2


def draws_by_priority(other: Mapping[str, Any]) -> bool:
    """Whether the configured replay buffer draws by priority, so that learning must return errors as priorities.

    Args:
      other: the section `policy.other` of the configuration.
    """
    kind = other.get("replay")
    if is_named(kind):
        return buffer_class(str(kind)).prioritized
    if kind != "table":
        return bool(kind == "prioritized")
    table = other["table"]
    return uses_priority(table.sampler) or uses_priority(table.remover)


class ActionValuePolicy(BasePolicy):
    """Takes the action of the highest value or, with probability `eps`, a random one; learns from single transitions.

    A subclass defines `make_network`, whose network has a `noise_size`, and `make_learner`.
    """

    sequences = False
    _learn_steps = 0
    _told_clipped = False

    def make_learner(self, net: Any, target: Any, prioritized: bool) -> QLearning:
        """Returns the root cell of an online and a target network, see `QLearning`."""
        raise NotImplementedError

    def make_root(self, net: Any, rng: np.random.Generator) -> QLearning:
        root = self.make_learner(net, self.make_network(rng), draws_by_priority(self.cfg.other))
        equalize(root.net, root.target)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        actor = GreedyActor(self.name, network, self.spec, rng)
        actor.noise_size = self.net.noise_size
        return actor

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def draw(self, batch: IndexedBatch) -> dict[str, Array]:
        """Random numbers of the gradient steps, by name, ``(K, ...)`` each."""
        return {}

    def learn(self, batch: IndexedBatch, progress: float | Array = 0.0) -> LearnOutput:
        output = super().learn(batch, progress)
        share = output.metrics.get(CLIPPED, 0.0)
        if share > _MUCH_CLIPPED and not self._told_clipped:
            self._told_clipped = True
            model = self.cfg.model
            _log.warning(
                "%s: %.0f %% of the targets' probability lies beyond the support from %g to %g and is moved to its "
                "ends, where returns can no longer be told apart: set policy.model.v_min and policy.model.v_max so "
                "that they enclose the discounted returns (reported once; train/%s shows it from now on)",
                self.name, 100 * share, model.v_min, model.v_max, CLIPPED,
            )  # fmt: skip
        return output

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        tau = target_moves(self.cfg.learn.target, self._learn_steps, len(batch.index))
        self._learn_steps += len(batch.index)
        # Most calls do not move the target; their graph lacks the branch for it and is faster.
        steps = {"tau": tau} if tau.any() else {}
        steps.update(self.draw(batch))
        if self.root.prioritized:
            steps["weight"] = np.ones(batch.index.shape, np.float32) if batch.weight is None else batch.weight
        return Inputs(steps, self.root.optim.rates(progress))

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
