"""The base of policies with an actor and a state value."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.types import Array
from minding.policies.acting.actors import Network, StochasticActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.advantages import standardized
from minding.policies.networks.actor_critic import ActorCritic

MEMORY = ("memory", "begun", "valid")
"""Additional row fields that a policy with memory learns from."""


class ActorCriticPolicy(BasePolicy):
    """Draws actions from a distribution and records their log-probability and the state's value, if learning uses them.

    A subclass defines `make_root` and `row_fields`. A policy whose settings have a memory learns from sequences: the
    index of a batch is then ``(K, T, B)``, and the rows of resets are part of a sequence, but do not count.
    """

    record_fields: ClassVar[tuple[str, ...]] = ("log_prob", "value")
    """Fields recorded at each step. With `value`, collectors also record the values that bootstrap a rollout, for
    `gae_estimator`."""

    def make_network(self, rng: np.random.Generator) -> ActorCritic:
        return ActorCritic(self.spec, self.cfg.model, rng)

    def make_actor(self, network: Network, rng: np.random.Generator) -> StochasticActor:
        return StochasticActor(self.name, network, self.spec, rng, self.net.head.distribution, self.record_fields)

    @property
    def memory_fields(self) -> dict[str, Field]:
        """Additional row fields of a policy with memory; empty without memory."""
        size = self.net.memory_size
        return dict(zip(MEMORY, (Field((size,)), Field(), Field()))) if size else {}

    def advantage(self, batch: IndexedBatch) -> Array:
        """The advantages for the gradient steps of a batch, float32 ``(K, R)``, standardized within each step if
        `learn.normalize_advantage` is on."""
        steps = len(batch.index)
        advantage = self._read("advantage", batch).reshape(steps, -1)
        if not self.cfg.learn.normalize_advantage:
            return advantage
        counted = self._counted(batch)
        return standardized(advantage, None if counted is None else counted.reshape(steps, -1))

    def all_rows(self, batch: IndexedBatch) -> Array:
        """The indices of all rows, for `GradientStep.present`: int32 ``(R,)``; with memory ``(T, N)``, ordered by time
        and then by environment."""
        rows = np.arange(batch.tables.rows, dtype=np.int32)
        return rows.reshape(batch.index.shape[1], -1) if self.net.memory_size else rows

    def observed(self, batch: IndexedBatch) -> Array:
        counted = self._counted(batch)
        return np.unique(batch.index if counted is None else batch.index[counted])

    def _counted(self, batch: IndexedBatch) -> Array | None:
        """Which rows count, bool, shaped like the index: with memory, rows that are not resets; otherwise rows that are
        not padding of a minibatch. None: all rows."""
        valid = self._read("valid", batch) if self.net.memory_size else batch.valid
        return None if valid is None else valid > 0

    def _read(self, name: str, batch: IndexedBatch) -> Array:
        return batch.layout.read(batch.tables.host, name)[batch.index]
