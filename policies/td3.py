"""TD3: deterministic actor-critic with twin critics, delayed updates of the actor, and noise on the target action.

Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477, algorithm 1.

    a' = clip(pi_target(s') + e, -1, 1),   e = clip(N(0, sigma), -c, c)
    y = R + gamma^k (1 - terminated) min_i Q_target_i(s', a')
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = -mean[ Q_1(s, pi(s)) ]              (every d-th step, with the critics after their step; then targets move)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms
from minding.engine.types import StateDict
from minding.policies.acting.actors import Network, NoisyActor
from minding.policies.acting.noise import make_noise
from minding.policies.core.base import BasePolicy
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.learning.steps import GradientStep
from minding.policies.learning.target import SoftTarget, equalize
from minding.policies.learning.update import Inputs
from minding.policies.networks.actor_critic import DeterministicActor, TwinCritics
from minding.policies.networks.layers import Clip
from minding.policies.ops import lean
from minding.policies.ops.order import after
from minding.policies.ops.soft import twin_objectives


class TD3Cell(GradientStep):
    """Root cell: actor, twin critics, the targets of both, optimizer."""

    metrics = ("critic_loss", "actor_loss", "q_value")

    def __init__(
        self,
        actors: tuple[DeterministicActor, DeterministicActor],
        critics: tuple[TwinCritics, TwinCritics],
        learn: Mapping[str, Any],
    ) -> None:
        super().__init__(["obs", "next_obs", "action", "reward", "terminated", "discount"])
        self.net, self.target_net = actors
        self.critics, self.target_critics = critics
        self.optim = Optimizer(actor=Group.of(self.net, learn), critics=Group.of(self.critics, learn))
        self.move_net = SoftTarget(self.net, self.target_net, self.optim.block("actor"))
        self.move_critics = SoftTarget(self.critics, self.target_critics, self.optim.block("critics"))
        self.limit_action = Clip(-1.0, 1.0)
        self.target, self.critic_loss = twin_objectives()
        self.zero = ms.Tensor(np.float32(0.0))
        self.critic_gradient = self.optim.gradient(self.loss_of_critics, "critics")
        self.actor_gradient = self.optim.gradient(self.loss_of_actor, "actor")

    def loss_of_critics(self, batch):
        q1, q2 = self.critics(batch["action"], batch["obs"])
        loss, q = self.critic_loss(q1, q2, batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def loss_of_actor(self, obs):
        loss = -lean.mean(self.critics.q1(self.net(obs)[0], obs))
        return loss, {"actor_loss": loss}

    def construct(self, batch):
        # Target
        next_action = self.limit_action(self.target_net(batch["next_obs"])[0] + batch["noise"])
        next_q1, next_q2 = self.target_critics(next_action, batch["next_obs"])
        target = self.target(batch["reward"], batch["discount"], batch["terminated"], next_q1, next_q2)
        # Critics
        rows = {"obs": batch["obs"], "action": batch["action"], "target": target}
        (_, metrics), grads = self.critic_gradient(rows)
        done = self.optim({"critics": grads}, batch, (metrics, grads))["critics"]
        # Actor and targets
        if "due" in batch:
            actor_loss = self.move_actor_if_due(batch, done)
        elif "tau" in batch:
            actor_loss = self.move_actor(batch, done)
        else:
            actor_loss = self.zero
        # Who waits for a metric waits for the whole step.
        metrics["actor_loss"] = after(actor_loss, done)
        return metrics

    def move_actor_if_due(self, batch, done):
        actor_loss = self.zero
        if after(batch["due"], done) > 0.0:
            actor_loss = self.move_actor(batch, done)
        return actor_loss

    def move_actor(self, batch, done):
        """The step of the actor, then those of all targets; returns the loss, known after them.

        Args:
          batch: that of the step.
          done: a result of the critics' step, which comes first.
        """
        (_, metrics), grads = self.actor_gradient(after(batch["obs"], done))
        norm = self.optim({"actor": grads}, batch, (metrics, grads))["actor"]
        moved = (self.move_net(batch["tau"], norm), self.move_critics(batch["tau"], norm))
        return after(metrics["actor_loss"], moved)


class TD3(BasePolicy):
    """Twin delayed deep deterministic policy gradient for Box actions in [-1, 1]."""

    name = "td3"
    sequences = False
    _learn_steps = 0

    @property
    def action_size(self) -> int:
        return math.prod(self.spec["action"]["shape"])

    def make_network(self, rng: np.random.Generator) -> DeterministicActor:
        return DeterministicActor(self.spec, self.cfg.model, rng)

    def make_root(self, net: DeterministicActor, rng: np.random.Generator) -> TD3Cell:
        target_net = DeterministicActor(self.spec, self.cfg.model, rng)
        critics, target_critics = (TwinCritics(self.spec, self.cfg.model, rng) for _ in range(2))
        root = TD3Cell((net, target_net), (critics, target_critics), self.cfg.learn)
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
        # A graph has a branch for the actor's step only where some steps of a call are due and others are not.
        if due.any():
            constants["tau"] = float(learn.tau)
            if not due.all():
                steps["due"] = due.astype(np.float32)
        return Inputs(steps, constants, {"actor_loss": int(due.sum())})

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
