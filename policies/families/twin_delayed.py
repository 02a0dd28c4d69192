"""Policies with a deterministic actor, several critics and delayed updates, and their gradient steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms
from minding.policies.acting.actors import Network, NoisyActor
from minding.policies.acting.sampling import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep, Inputs
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.networks.actor_critic import CriticEnsemble, DeterministicActor
from minding.policies.networks.layers import Clip
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import critic_objectives


class TwinDelayed(GradientStep):
    """Root cell: actor, critics, the targets of both, and optimizer (Fujimoto et al., 2018,
    https://arxiv.org/abs/1802.09477, algorithm 1).

    The critics are updated first. If a step of the actor is due, the actor is updated with the new critics, then both
    targets. A subclass defines `td_target` and `loss_of_actor`.

    Args:
      actors, critics: for each, the online network and its target, of the same shape.
      learn: the configuration `policy.learn`.

    Attributes:
      of_actor: names of the metrics that `loss_of_actor` returns; they are means over the steps that update the actor.
    """

    metrics: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value")
    of_actor: tuple[str, ...] = ("actor_loss",)

    def __init__(
        self,
        actors: tuple[DeterministicActor, DeterministicActor],
        critics: tuple[CriticEnsemble, CriticEnsemble],
        learn: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.net, self.target_net = actors
        self.critics, self.target_critics = critics
        self.optim = Optimizer(actor=Group.of(self.net, learn), critics=Group.of(self.critics, learn))
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actor"))
        self.move_critics = SoftTarget(self.critics, self.target_critics, self.optim.block("critics"))
        self.limit_action = Clip(-1.0, 1.0)
        _, self.value_target, self.critic_loss, _ = critic_objectives()
        self.zeros = tuple(ms.Tensor(np.float32(0.0)) for _ in self.of_actor)
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    # Defined by the algorithm.

    def td_target(self, batch):
        """y, float32 (B,), from the batch of the step; no gradient flows into it."""
        raise NotImplementedError

    def loss_of_actor(self, rows):
        """The loss, and the metrics `of_actor` by name.

        Args:
          rows: `obs` and `action` by name.
        """
        raise NotImplementedError

    # Shared by the algorithms.

    def loss_of_critics(self, batch):
        loss, q = self.critic_loss(self.critics(batch["action"], batch["obs"]), batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def next_actions(self, batch):
        """The actions of the target actor with the clipped noise of the batch, float32 (B, A) in [-1, 1]."""
        return self.limit_action(self.target_net(batch["next_obs"])[0] + batch["noise"])

    def construct(self, batch):
        # Critics
        rows = {"obs": batch["obs"], "action": batch["action"], "target": self.td_target(batch)}
        (_, metrics), grads = self.critic_gradient(rows)
        done = self.optim({"critics": grads}, batch, (metrics, grads))["critics"]
        # Actor and targets
        if "due" in batch:
            values = self.move_actor_if_due(batch, done)
        elif "tau" in batch:
            values = self.move_actor(batch, done)
        else:
            values = self.zeros
        # A caller that waits for a metric waits for the whole step.
        for k in range(len(self.of_actor)):
            metrics[self.of_actor[k]] = after(primitives.item(values, k), done)
        return metrics

    def move_actor_if_due(self, batch, done):
        values = self.zeros
        if after(batch["due"], done) > 0.0:
            values = self.move_actor(batch, done)
        return values

    def move_actor(self, batch, done):
        """Updates the actor, then all targets; returns the actor's metrics in order, available after these updates.

        Args:
          batch: the batch of the step.
          done: a result of the critics' step, which comes first.
        """
        (_, metrics), grads = self.actor_gradient({"obs": after(batch["obs"], done), "action": batch["action"]})
        norm = self.optim({"actor": grads}, batch, (metrics, grads))["actor"]
        moved = (self.move_net(batch["tau"], norm), self.move_critics(batch["tau"], norm))
        values: Any = ()
        for name in self.of_actor:
            values = (*values, after(metrics[name], moved))
        return values


class TwinDelayedPolicy(BasePolicy):
    """Acts deterministically, explores with noise, and learns from single transitions.

    A subclass defines `step_class`.
    """

    network_class = DeterministicActor
    sequences = False
    counts_steps = True
    root: TwinDelayed

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    def make_root(self, net: Any, rng: np.random.Generator) -> TwinDelayed:
        target_net = self.make_network(rng)
        critics, target_critics = (CriticEnsemble(self.spec, self.cfg.model, rng) for _ in range(2))
        equalize(net, target_net)
        equalize(critics, target_critics)
        root: TwinDelayed = self.step_class((net, target_net), (critics, target_critics), self.cfg.learn)
        return root

    def make_actor(self, network: Network, rng: np.random.Generator) -> NoisyActor:
        noise = make_noise(self.cfg.collect.noise, self.action_size, self.name)
        return NoisyActor(self.name, network, self.spec, rng, noise)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, count = self.cfg.learn, len(batch.index)
        noise = self.learn_rng.standard_normal((*batch.index.shape, self.action_size), dtype=np.float32)
        limit = np.float32(learn.noise_clip)
        steps = {"noise": np.clip(np.float32(learn.target_noise) * noise, -limit, limit)}
        constants = self.root.optim.rates(progress)
        due = (self.learn_steps + 1 + np.arange(count)) % learn.policy_delay == 0
        # The graph has a branch for the actor's step only if some steps of the call are due and others are not.
        if due.any():
            constants["tau"] = float(learn.tau)
            if not due.all():
                steps["due"] = due.astype(np.float32)
        return Inputs(steps, constants, dict.fromkeys(self.root.of_actor, int(due.sum())))
