"""CQL: SAC on recorded data, with a penalty on high values of actions that were not recorded.

Kumar et al., 2020, https://arxiv.org/abs/2006.04779, eq. 4 (CQL(H)) and appendix F.

    y = R + gamma (1 - terminated) min_i Q_target_i(s', a'),   a' ~ pi(s')
    g_i = log 1/M sum_j exp( Q_i(s, a_j) - log p_j(a_j) ) - Q_i(s, a)
    L_Q = sum_i mean[ 1/2 (Q_i - y)^2 ] + w sum_i mean[ g_i ]
    L_pi, L_alpha: as in SAC

Of the M = 3 n actions, n are uniform in [-1, 1], n are drawn from pi(s) and n from pi(s'), with their densities p; no
gradient flows through actions and densities. w is `conservative_weight`; with `lagrange` it is learned so that the mean
of the gaps stays below `lagrange_gap`. The authors' code leaves out log 1/M, a constant, and has no factor 1/2 before
the squared error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array
from minding.policies.families.soft_actor_critic import SoftActorCritic, SquashedGaussianPolicy
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import SquashedActor, TwinCritics
from minding.policies.ops import primitives
from minding.policies.ops.distributions import SquashedGaussian
from minding.policies.ops.values import log_integral, soft_objectives, twin_objectives

_LARGEST_WEIGHT = 1e6


class CQLCell(SoftActorCritic):
    """Root cell of a policy of squashed Gaussians.

    Args:
      actor, critics, targets, learn: see `SoftActorCritic`.
      size: size of an action, A.
      target_entropy: target entropy of the policy, in nats.
    """

    metrics = (*SoftActorCritic.metrics, "conservative_gap", "conservative_weight")
    of_critics = ("conservative_gap", "conservative_weight")
    has_action_values = True

    def __init__(
        self,
        actor: SquashedActor,
        critics: TwinCritics,
        targets: TwinCritics,
        learn: Mapping[str, Any],
        size: int,
        target_entropy: float,
    ) -> None:
        super().__init__(actor, critics, targets, learn)
        self.lagrange, self.allowed = bool(learn["lagrange"]), float(learn["lagrange_gap"])
        self.size, self.count = size, 3 * int(learn["n_actions"])
        self.uniform_log_density = ms.Tensor(np.float32(-size * math.log(2.0)))
        self.squashed = SquashedGaussian()
        self.twin_target, self.critic_loss = twin_objectives()
        self.policy_loss = soft_objectives().policy_loss
        self.wanted_entropy = target_entropy

    def own_groups(self, learn: Mapping[str, Any]) -> dict[str, Group]:
        weight = ms.Tensor(np.float32(math.log(learn["conservative_weight"])))
        self.log_weight = ms.Parameter(weight, name="log_weight", requires_grad=bool(learn["lagrange"]))
        if not learn["lagrange"]:
            return {}
        return {"weight": dataclasses.replace(Group.of(self.critics, learn), params=[self.log_weight])}

    def td_target(self, batch):
        """y, float32 (B,)."""
        mean, log_std = self.net(batch["next_obs"])
        action, _ = self.squashed(mean, log_std, batch["next_noise"])
        q1, q2 = self.targets(action, batch["next_obs"])
        return self.twin_target(batch["reward"], batch["discount"], batch["terminated"], q1, q2)

    def loss_of_critics(self, batch):
        q1, q2 = self.critics(batch["action"], batch["obs"])
        loss, q = self.critic_loss(q1, q2, batch["target"])
        others1, others2 = self.critics.of_many(batch["others"], batch["obs"])
        density = batch["log_density"]
        gap1 = primitives.mean(log_integral(others1, density, self.count) - q1)
        gap2 = primitives.mean(log_integral(others2, density, self.count) - q2)
        weight = ops.stop_gradient(self.weight())
        loss = loss + weight * (gap1 + gap2)
        gap = ops.stop_gradient(0.5 * (gap1 + gap2))
        return loss, {"critic_loss": loss, "q_value": q, "conservative_gap": gap, "conservative_weight": weight}

    def loss_of_actor(self, batch):
        mean, log_std = self.net(batch["obs"])
        action, log_prob = self.squashed(mean, log_std, batch["noise"])
        q1, q2 = self.critics(action, batch["obs"])
        loss, log_prob = self.policy_loss(q1, q2, log_prob, batch["alpha"])
        return loss, {"actor_loss": loss, "entropy": -log_prob}

    def action_value(self, action, obs):
        q1, q2 = self.critics(action, obs)
        return ops.Minimum()(q1, q2)

    def target_entropy(self, batch):
        return self.wanted_entropy

    def prepare(self, batch):
        """Draws the other actions, float32 (M, B, A), and their log densities (M, B)."""
        uniform = batch["uniform"]
        own, own_log_density = self.drawn(batch["obs"], batch["own_noise"])
        following, following_log_density = self.drawn(batch["next_obs"], batch["following_noise"])
        flat = ops.ZerosLike()(own_log_density) + self.uniform_log_density
        batch["others"] = ops.stop_gradient(ops.Concat(0)((uniform, own, following)))
        batch["log_density"] = ops.stop_gradient(ops.Concat(0)((flat, own_log_density, following_log_density)))
        return batch

    def drawn(self, obs, noise):
        """n actions of the policy for each row, float32 (n, B, A), and their log densities (n, B); noise (n, B, A)."""
        mean, log_std = self.net(obs)
        shape = noise.shape
        rows = (-1, shape[2])
        # The kernel takes one row for each of the n B actions.
        mean = ops.Reshape()(ops.BroadcastTo(shape)(ops.ExpandDims()(mean, 0)), rows)
        log_std = ops.Reshape()(ops.BroadcastTo(shape)(ops.ExpandDims()(log_std, 0)), rows)
        action, log_prob = self.squashed(mean, log_std, ops.Reshape()(noise, rows))
        return ops.Reshape()(action, shape), ops.Reshape()(log_prob, (shape[0], shape[1]))

    def weight(self):
        """w, a scalar."""
        return ops.clamp(ops.Exp()(self.log_weight), 0.0, _LARGEST_WEIGHT)

    def own_gradients(self, critic):
        if not self.lagrange:
            return {}
        # The derivative of -w (gap - allowed) with respect to log w.
        return {"weight": (-critic["conservative_weight"] * (critic["conservative_gap"] - self.allowed),)}


class CQL(SquashedGaussianPolicy):
    """Conservative Q-learning, from recorded data with Box actions in [-1, 1]."""

    name = "cql"

    def make_learner(self, net: Any, critics: tuple[Any, Any]) -> CQLCell:
        return CQLCell(net, *critics, self.cfg.learn, self.action_size, self.target_entropy)

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        rows = (batch.index.shape[1], self.action_size)
        # Drawn step by step, so that the numbers do not depend on the number of steps per call.
        drawn = [self._draw(rows) for _ in batch.index]
        return Inputs(
            {name: np.stack([each[name] for each in drawn]) for name in drawn[0]},
            {**self.root.optim.rates(progress), "tau": float(self.cfg.learn.tau)},
        )

    def _draw(self, rows: tuple[int, int]) -> dict[str, Array]:
        """The random numbers of a gradient step with rows (B, A)."""
        rng, count = self.learn_rng, self.cfg.learn.read("n_actions", int)
        noise = rng.standard_normal((2, *rows), dtype=np.float32)
        others = rng.standard_normal((2, count, *rows), dtype=np.float32)
        uniform = 2.0 * rng.random((count, *rows), dtype=np.float32) - 1.0
        names = ("next_noise", "noise", "own_noise", "following_noise", "uniform")
        return dict(zip(names, (*noise, *others, uniform), strict=True))
