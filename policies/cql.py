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

With `calibrated` (Cal-QL: Nakamoto et al., 2023, https://arxiv.org/abs/2303.05479, eq. 5.1), g_i has
max( Q_i(s, a_j), G(s) ) in place of Q_i(s, a_j) for the policy's actions, where G(s) is the discounted return that was
recorded from s on.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.engine.types import Array
from minding.policies.families.soft_actor_critic import SquashedGaussianPolicy, SquashedGaussianStep
from minding.policies.learning.optim import Group
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import CriticEnsemble, SquashedActor
from minding.policies.ops import primitives
from minding.policies.ops.values import log_integral, lowest
from minding.policies.settings.offline import CQLSettings

_LARGEST_WEIGHT = 1e6
RETURN = "return"
"""Name of the field with the recorded return."""
_NO_RETURN = -1e30
"""The return of a step that was not recorded in advance: it bounds nothing."""


class CQLCell(SquashedGaussianStep):
    """Root cell: see `SoftActorCritic`."""

    metrics = (*SquashedGaussianStep.metrics, "conservative_gap", "conservative_weight")
    of_critics = ("critic_loss", "q_value", "conservative_gap", "conservative_weight")
    has_action_values = True

    def __init__(
        self,
        actor: SquashedActor,
        critics: CriticEnsemble,
        targets: CriticEnsemble,
        learn: Mapping[str, Any],
        target_entropy: float,
    ) -> None:
        super().__init__(actor, critics, targets, learn, target_entropy)
        self.lagrange, self.allowed = bool(learn["lagrange"]), float(learn["lagrange_gap"])
        self.count, self.log_two = 3 * int(learn["n_actions"]), math.log(2.0)
        self.calibrated = bool(learn["calibrated"])

    def own_groups(self, learn: Mapping[str, Any]) -> dict[str, Group]:
        weight = ms.Tensor(np.float32(math.log(learn["conservative_weight"])))
        self.log_weight = ms.Parameter(weight, name="log_weight", requires_grad=bool(learn["lagrange"]))
        if not learn["lagrange"]:
            return {}
        return {"weight": dataclasses.replace(Group.of(self.critics, learn), params=[self.log_weight])}

    def td_target(self, batch):
        action, _ = self.drawn(batch["next_obs"], batch["next_noise"])
        q = self.targets(action, batch["next_obs"])
        return self.value_target(batch["reward"], batch["discount"], batch["terminated"], q)

    def loss_of_critics(self, batch):
        q = self.critics(batch["action"], batch["obs"])
        loss, value = self.critic_loss(q, batch["target"])
        total = 0.0
        for own, others in zip(ops.Unstack()(q), self.critics.of_many(batch["others"], batch["obs"])):
            if self.calibrated:
                others = self.bounded(others, batch[RETURN])
            total = total + primitives.mean(log_integral(others, batch["log_density"], self.count) - own)
        weight = ops.stop_gradient(self.weight())
        gap = ops.stop_gradient(total / q.shape[0])
        loss = loss + weight * total
        return loss, {"critic_loss": loss, "q_value": value, "conservative_gap": gap, "conservative_weight": weight}

    def bounded(self, others, lowest_of_policy):
        """The values of the other actions (M, B), those of the policy's actions not below a bound (B,)."""
        uniform = self.count // 3
        of_policy = ops.Maximum()(primitives.part(others, uniform, 2 * uniform), lowest_of_policy)
        return ops.Concat(0)((primitives.part(others, 0, uniform), of_policy))

    def action_value(self, action, obs):
        return lowest(self.critics(action, obs))

    def prepare(self, batch):
        """Draws the other actions, float32 (M, B, A), and their log densities (M, B)."""
        uniform = batch["uniform"]
        own, own_log_density = self.drawn_each(batch["obs"], batch["own_noise"])
        following, following_log_density = self.drawn_each(batch["next_obs"], batch["following_noise"])
        flat = ops.ZerosLike()(own_log_density) - uniform.shape[-1] * self.log_two
        batch["others"] = ops.stop_gradient(ops.Concat(0)((uniform, own, following)))
        batch["log_density"] = ops.stop_gradient(ops.Concat(0)((flat, own_log_density, following_log_density)))
        return batch

    def drawn_each(self, obs, noise):
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

    cfg: CQLSettings
    name = "cql"
    step_class = CQLCell

    @property
    def row_fields(self) -> dict[str, Field]:
        fields = dict(self.transition_fields)
        if self.cfg.learn.calibrated:
            fields[f"{RETURN}.{self.cfg.learn.gamma!r}"] = Field(default=_NO_RETURN)
        return fields

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        rows = (batch.index.shape[1], self.action_size)
        # Drawn step by step, so that the numbers do not depend on the number of steps per call.
        drawn = [self._draw(rows) for _ in batch.index]
        return Inputs({name: np.stack([each[name] for each in drawn]) for name in drawn[0]}, self.constants(progress))

    def _draw(self, rows: tuple[int, int]) -> dict[str, Array]:
        """The random numbers of a gradient step with rows (B, A)."""
        rng, count = self.learn_rng, self.cfg.learn.n_actions
        noise = rng.standard_normal((2, *rows), dtype=np.float32)
        others = rng.standard_normal((2, count, *rows), dtype=np.float32)
        uniform = 2.0 * rng.random((count, *rows), dtype=np.float32) - 1.0
        names = ("next_noise", "noise", "own_noise", "following_noise", "uniform")
        return dict(zip(names, (*noise, *others, uniform), strict=True))
