"""Policies with an actor and a state value, and their gradient steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms
from minding.engine.types import Array
from minding.policies.acting.actors import Network, StochasticActor
from minding.policies.core.base import BasePolicy
from minding.policies.learning.steps import GradientStep
from minding.policies.networks.actor_critic import ActorCritic


def moments(x: Array, counted: Array | None = None) -> tuple[Array, Array]:
    """Mean and standard deviation of each row of x, each ``(K, 1)``, over the numbers that count.

    Both are 0 for a row in which no number counts. For a row in which a single number counts they are 0 and 1, so that
    standardizing leaves this number unchanged.

    Args:
      x: float32 (K, R).
      counted: bool (K, R), which numbers count; None: all.
    """
    if counted is None:
        mean, deviation = x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
        number = np.full_like(mean, x.shape[1])
    else:
        number = counted.sum(axis=1, keepdims=True).astype(np.float32)
        divisor = np.maximum(number, 1.0)
        mean = np.where(counted, x, 0.0).sum(axis=1, keepdims=True) / divisor
        distance = np.where(counted, x - mean, 0.0)
        deviation = np.sqrt(np.square(distance).sum(axis=1, keepdims=True) / divisor)
    alone = number == 1
    return np.where(alone, np.float32(0.0), mean), np.where(alone, np.float32(1.0), deviation)


def standardized(x: Array, counted: Array | None = None) -> Array:
    """Each row of x ``(K, R)`` with zero mean and unit variance; for the arguments and for rows with a single number
    that counts, see `moments`."""
    # If a number becomes infinite here, the loss does too, and its error says more.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = moments(x, counted)
        scaled: Array = (x - mean) / (std + 1e-8)
    return scaled


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


class ProximalStep(GradientStep):
    """Base of steps that end once the policy has moved too far from the policy that collected the rows.

    A subclass has the optimizer `optim` with the group ``net``, and the metrics ``loss`` and ``approx_kl``.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__(fields)
        self.nothing = ms.Tensor(np.float32(0.0))

    def watch(self, target_kl: float | None) -> None:
        """Ends the steps of a call at a divergence above 1.5 times `target_kl`; None or 0: makes all steps."""
        if target_kl:
            self.watched, self.limit = "approx_kl", 1.5 * target_kl

    def move(self, grads, batch, metrics):
        """Updates the weights unless the divergence in `metrics` exceeds the limit.

        Returns:
          The norm of the gradient; 0 if the weights were not updated.
        """
        if self.watched is None:
            return self.move_at_once(grads, batch, metrics)
        norm = self.nothing
        if metrics["approx_kl"] <= self.limit:
            norm = self.move_at_once(grads, batch, metrics)
        return norm

    def move_at_once(self, grads, batch, metrics):
        """Updates the weights; returns the norm of the gradient."""
        return self.optim({"net": grads}, batch, (metrics["loss"], metrics["approx_kl"]))["net"]
