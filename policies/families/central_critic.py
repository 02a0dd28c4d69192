"""Policies of agents that act by their own observations, with values that see the state of the whole environment."""

from typing import Any

import numpy as np

from minding.engine.data.agent_axis import ALIVE, CENTRAL, IDENTITY, STATE
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.acting.actors import Network
from minding.policies.acting.team_actors import CENTRAL_PARTS, CentralActor
from minding.policies.families.actor_critic import ActorCriticPolicy, standardized
from minding.policies.learning.steps import Inputs
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import huber

_ALIVE = CENTRAL_PARTS.index(ALIVE)


def in_units_of_head(batch, head):
    """The batch with returns and recorded values in the units of a `PopArt` head, and with `acting`, float32 (B,): 0
    for rows from which no actor learns."""
    batch["return"] = head.normalized(batch["return"])
    batch["value"] = (batch["value"] - batch["recorded_mean"]) / batch["recorded_deviation"]
    acting = primitives.item(batch[CENTRAL], _ALIVE)
    if "valid" in batch:
        acting = acting * batch["valid"]
    batch["acting"] = acting
    return batch


def value_loss(value, batch, cfg):
    """The Huber loss of normalized values, a scalar (Yu et al., 2022, https://arxiv.org/abs/2103.01955, appendix A).

    Args:
      value: float32 (B,).
      batch: by name the old `value`, `return` and, if some rows do not count, `valid`, float32 (B,) each; normalized.
      cfg: configuration with `huber_delta`, `clip_ratio` and `value_clip`.
    """
    clip, delta = cfg["clip_ratio"], cfg["huber_delta"]
    error = huber((value - batch["return"]) / delta)
    if cfg["value_clip"]:
        clipped = batch["value"] + ops.clamp(value - batch["value"], -clip, clip)
        error = ops.maximum(error, huber((clipped - batch["return"]) / delta))
    return delta * delta * row_mean(error, batch)


class CentralCriticPolicy(ActorCriticPolicy):
    """Learns from the rows of single agents, each with the state of the whole environment.

    The network of a subclass has its `CentralValue` as the attribute ``critic``.
    """

    scalar_fields = ("log_prob", "value", "advantage", "return")
    host_fields = ("advantage",)

    def make_actor(self, network: Network, rng: np.random.Generator) -> CentralActor:
        return CentralActor(self.name, network, self.acting_spec, rng, self.net.head.distribution, self.record_fields)

    @property
    def acting_spec(self) -> Any:
        """The description of the environment for actors."""
        return self.spec

    @property
    def row_fields(self) -> dict[str, Field]:
        leaves = observation_leaves(self.spec["agents"]["state"])
        state = {leaf_name(f"{CENTRAL}.{STATE}", leaf): leaf.field for leaf in leaves}
        # The fields have the order of `central_view`.
        central = {f"{CENTRAL}.{IDENTITY}": Field((), "int32"), f"{CENTRAL}.{ALIVE}": Field(), **state}
        return {**self.obs_fields("obs"), **central, **super().row_fields}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, steps, value = self.cfg.learn, len(batch.index), self.net.critic.value
        before_first = not value.updates.asnumpy()[0]
        if learn.value_norm:
            self._update_moments(batch)
        # The first update of the moments keeps the head's weights, and later ones keep its values in units of the
        # returns, so that the old normalized values of rows equal the head's values before the first gradient step.
        mean, deviation = (0.0, 1.0) if before_first else (float(p.asnumpy()[0]) for p in (value.mean, value.deviation))
        recorded = {"recorded_mean": mean, "recorded_deviation": deviation}
        advantage = self.read("advantage", batch).reshape(steps, -1)
        if learn.normalize_advantage:
            advantage = standardized(advantage, self._learned_by_actor(batch).reshape(steps, -1))
        return Inputs({"advantage": advantage}, {**self.constants(progress), **recorded, **self.all_rows(batch)})

    def observed(self, batch: IndexedBatch) -> Array:
        return np.unique(batch.index[self._learned_by_actor(batch)])

    def _learned_by_actor(self, batch: IndexedBatch) -> Array:
        """The rows from which the actor learns: bool, shaped like the index."""
        alive: Array = self.read(f"{CENTRAL}.{ALIVE}", batch) > 0
        counted = self.counted(batch)
        return alive if counted is None else alive & counted

    def _update_moments(self, batch: IndexedBatch) -> None:
        """Adds the returns of a batch, each once, to the moments of the value head."""
        counted = self.counted(batch)
        rows = np.unique(batch.index if counted is None else batch.index[counted])
        if len(rows):
            returns = batch.layout.read(batch.tables.host, "return", rows)
            self.net.critic.value.update(returns, self.cfg.learn.value_norm_decay)
