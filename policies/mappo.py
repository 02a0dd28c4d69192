"""MAPPO: PPO for a team of agents, with a value function that sees the state of the whole environment.

Yu et al., 2022, https://arxiv.org/abs/2103.01955, appendix A; PPO: Schulman et al., 2017,
https://arxiv.org/abs/1707.06347; the moments of the returns as in PopArt: van Hasselt et al., 2016,
https://arxiv.org/abs/1602.07714.

    r_t = pi(a_t|o_t) / pi_old(a_t|o_t),   V(o_t, s_t, m) = sigma v + mu
    L = sum alive max(-A r, -A clip(r, 1-e, 1+e)) / sum alive + c_v L_value - c_e H
    L_value = mean[ max(h(v - (R - mu) / sigma), h(v_old + clip(v - v_old, -e, e) - (R - mu) / sigma)) ]
    h(x) = x^2/2 for |x| <= d, else d (|x| - d/2)

Agents share one network and are rows of one batch. Each agent acts by its own observation o, or by its memory of
observations, and has its own advantage A; the agent number m tells the value function whose return to estimate. With
one reward for the whole team, the return of an agent does not end when it leaves: from then on, the value function sees
only m ("death masking"), and the actor does not learn from these rows.

In an asynchronous run, the advantage is weighted as in PPO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.agents import ALIVE, CENTRAL, IDENTITY, STATE
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.data.observation import leaf_name, observation_leaves
from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.acting.actors import Network
from minding.policies.acting.agents import CENTRAL_PARTS, CentralActor
from minding.policies.families.actor_critic import ActorCriticPolicy, ProximalStep, standardized
from minding.policies.learning.steps import Inputs
from minding.policies.networks.central import CentralActorCritic
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import clipped_surrogate, row_mean
from minding.policies.ops.values import huber


def mappo_loss(log_prob, entropy, value, batch, cfg):
    """The loss of one minibatch.

    Args:
      log_prob, value: log-probability and normalized value by the current network, float32 (B,).
      entropy: entropy by the current network, float32 (B,) or scalar.
      batch: by name: the old `log_prob` and `value`, `advantage`, `return`, `acting`, which is 0 for rows from which
        the actor does not learn, and, if some rows do not count, `valid`, each float32 (B,). Values and returns are
        normalized.
      cfg: the `learn` part of the configuration.

    Returns:
      `SURROGATE_METRICS`, scalars.
    """
    clip, delta, acting = cfg["clip_ratio"], cfg["huber_delta"], {"valid": batch["acting"]}
    # Policy
    policy_loss, kl, clip_fraction = clipped_surrogate(log_prob, batch, acting, clip)
    entropy = row_mean(entropy, acting)
    # Value
    error = huber((value - batch["return"]) / delta)
    if cfg["value_clip"]:
        clipped = batch["value"] + ops.clamp(value - batch["value"], -clip, clip)
        error = ops.maximum(error, huber((clipped - batch["return"]) / delta))
    value_loss = delta * delta * row_mean(error, batch)
    # Total
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    return loss, policy_loss, value_loss, entropy, kl, clip_fraction


class MAPPOCell(ProximalStep):
    """Root cell: network and optimizer."""

    def __init__(self, net: CentralActorCritic, learn: Mapping[str, Any]) -> None:
        super().__init__(net, learn, ("clip_ratio", "value_clip", "value_weight", "entropy_weight", "huber_delta"))
        self.alive = CENTRAL_PARTS.index(ALIVE)

    def loss(self, batch):
        log_prob, entropy, value = self.evaluated(batch)
        results = mappo_loss(log_prob, entropy, value, batch, self.cfg)
        return results[0], self.named(results)

    def construct(self, batch):
        batch["return"] = self.net.critic.value.normalized(batch["return"])
        if "trust" not in batch:
            batch["value"] = (batch["value"] - batch["recorded_mean"]) / batch["recorded_deviation"]
        acting = primitives.item(batch[CENTRAL], self.alive)
        if "valid" in batch:
            acting = acting * batch["valid"]
        batch["acting"] = acting
        return self.step(self.with_present(batch))


class MAPPO(ActorCriticPolicy):
    """Multi-agent proximal policy optimization for Discrete, MultiDiscrete and Box actions."""

    name = "mappo"
    step_class = MAPPOCell
    network_class = CentralActorCritic
    numbers = ("log_prob", "value", "advantage", "return")
    host_fields = ("advantage",)

    def make_actor(self, network: Network, rng: np.random.Generator) -> CentralActor:
        return CentralActor(self.name, network, self.spec, rng, self.net.head.distribution, self.record_fields)

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
