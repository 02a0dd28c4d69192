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
from minding.policies.families.actor_critic import MEMORY, ActorCriticPolicy, ProximalStep, standardized
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import ALL_ROWS, Inputs
from minding.policies.networks.central import CentralActorCritic
from minding.policies.networks.heads import fuse_likelihood
from minding.policies.ops import primitives
from minding.policies.ops.policy_gradient import clipped_surrogate, row_mean
from minding.policies.ops.values import huber

WEIGHT_BOUND = 2.0
"""Upper bound of the weight of rows that an older policy collected."""


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
      (loss, metrics by name), scalars.
    """
    clip, delta, acting = cfg["clip_ratio"], cfg["huber_delta"], {"valid": batch["acting"]}
    # Policy
    policy_loss, metrics = clipped_surrogate(log_prob, batch, acting, clip)
    entropy = row_mean(entropy, acting)
    # Value
    error = huber((value - batch["return"]) / delta)
    if cfg["value_clip"]:
        clipped = batch["value"] + ops.clamp(value - batch["value"], -clip, clip)
        error = ops.maximum(error, huber((clipped - batch["return"]) / delta))
    value_loss = delta * delta * row_mean(error, batch)
    # Total
    loss = policy_loss + cfg["value_weight"] * value_loss - cfg["entropy_weight"] * entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": metrics["approx_kl"],
        "clip_fraction": metrics["clip_fraction"],
    }


class MAPPOCell(ProximalStep):
    """Root cell: network and optimizer."""

    metrics = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")
    present_names = ("present_log_prob", "present_value", "trust")

    def __init__(self, net: CentralActorCritic, learn: Mapping[str, Any]) -> None:
        remembers = net.memory is not None
        super().__init__(["obs", CENTRAL, "action", "log_prob", "return", "value", *(MEMORY if remembers else ())])
        self.net = net
        self.optim = Optimizer(net=Group.of(net, learn, eps=1e-5, max_grad_norm=learn["grad_norm"]))
        # A plain dict of numbers, which are compiled in as constants.
        names = ("clip_ratio", "value_clip", "value_weight", "entropy_weight", "huber_delta")
        self.cfg = {k: learn[k] for k in names}
        fuse_likelihood(net.head)
        self.alive = CENTRAL_PARTS.index(ALIVE)
        self.watch(learn["target_kl"])
        self.gradient = self.optim.gradient(self.loss, "net")

    def loss(self, batch):
        params, value = self.net.of_rows(batch)
        log_prob, entropy = self.net.head.log_prob_entropy(params, batch["action"])
        return mappo_loss(log_prob, entropy, value, batch, self.cfg)

    def present(self, rows):
        """Log-probability and value of rows under the current policy, and the weight `trust` of each row."""
        params, value = self.net.of_rows(rows)
        log_prob = self.net.head.log_prob_entropy(params, rows["action"])[0]
        trust = ops.clamp(ops.exp(log_prob - rows["log_prob"]), max=WEIGHT_BOUND)
        return {"present_log_prob": log_prob, "present_value": value, "trust": trust}

    def construct(self, batch):
        value = self.net.critic.value
        batch["return"] = value.normalized(batch["return"])
        if "trust" in batch:
            batch["log_prob"], batch["value"] = batch["present_log_prob"], batch["present_value"]
            batch["advantage"] = batch["advantage"] * batch["trust"]
        else:
            batch["value"] = (batch["value"] - batch["recorded_mean"]) / batch["recorded_deviation"]
        acting = primitives.item(batch[CENTRAL], self.alive)
        if "valid" in batch:
            acting = acting * batch["valid"]
        batch["acting"] = acting
        (_, metrics), grads = self.gradient(batch)
        metrics["grad_norm"] = self.move(grads, batch, metrics)
        return metrics


class MAPPO(ActorCriticPolicy):
    """Multi-agent proximal policy optimization for Discrete, MultiDiscrete and Box actions."""

    name = "mappo"

    def make_network(self, rng: np.random.Generator) -> CentralActorCritic:
        return CentralActorCritic(self.spec, self.cfg.model, rng)

    def make_root(self, net: CentralActorCritic, rng: np.random.Generator) -> MAPPOCell:
        return MAPPOCell(net, self.cfg.learn)

    def make_actor(self, network: Network, rng: np.random.Generator) -> CentralActor:
        return CentralActor(self.name, network, self.spec, rng, self.net.head.distribution, self.record_fields)

    @property
    def row_fields(self) -> dict[str, Field]:
        numbers = dict.fromkeys(("log_prob", "value", "advantage", "return"), Field())
        leaves = observation_leaves(self.spec["agents"]["state"])
        state = {leaf_name(f"{CENTRAL}.{STATE}", leaf): leaf.field for leaf in leaves}
        # The fields have the order of `central_view`.
        central = {f"{CENTRAL}.{IDENTITY}": Field((), "int32"), f"{CENTRAL}.{ALIVE}": Field(), **state}
        return {**self.obs_fields("obs"), **central, "action": self.action_field, **numbers, **self.memory_fields}

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, steps, value = self.cfg.learn, len(batch.index), self.net.critic.value
        before_first = not value.updates.asnumpy()[0]
        if learn.value_norm:
            self._update_moments(batch)
        # The first update of the moments keeps the head's weights, and later ones keep its values in units of the
        # returns, so that the old normalized values of rows equal the head's values before the first gradient step.
        mean, deviation = (0.0, 1.0) if before_first else (float(p.asnumpy()[0]) for p in (value.mean, value.deviation))
        recorded = {"recorded_mean": mean, "recorded_deviation": deviation}
        advantage = self._read("advantage", batch).reshape(steps, -1)
        if learn.normalize_advantage:
            advantage = standardized(advantage, self._learned_by_actor(batch).reshape(steps, -1))
        old = {ALL_ROWS: self.all_rows(batch)} if batch.lag > 0 else {}
        return Inputs({"advantage": advantage}, {**self.root.optim.rates(progress), **recorded, **old})

    def observed(self, batch: IndexedBatch) -> Array:
        return np.unique(batch.index[self._learned_by_actor(batch)])

    def _learned_by_actor(self, batch: IndexedBatch) -> Array:
        """The rows from which the actor learns: bool, shaped like the index."""
        alive: Array = self._read(f"{CENTRAL}.{ALIVE}", batch) > 0
        counted = self._counted(batch)
        return alive if counted is None else alive & counted

    def _update_moments(self, batch: IndexedBatch) -> None:
        """Adds the returns of a batch, each once, to the moments of the value head."""
        counted = self._counted(batch)
        rows = np.unique(batch.index if counted is None else batch.index[counted])
        if len(rows):
            returns = batch.layout.read(batch.tables.host, "return", rows)
            self.net.critic.value.update(returns, self.cfg.learn.value_norm_decay)
