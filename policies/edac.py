"""EDAC and SAC-N: soft actor-critic on recorded data, with the smallest value of an ensemble of critics as the target.

An et al., 2021, https://arxiv.org/abs/2110.01548, eq. 2 (SAC-N) and algorithm 1 (EDAC).

    y = R + gamma (1 - terminated) [ min_{i <= N} Q_target_i(s', a') - alpha log pi(a'|s') ],   a' ~ pi(s')
    D = mean[ 1/(N - 1) sum_{i != j} <g_i, g_j> ],   g_i = grad_a Q_i(s, a) / |grad_a Q_i(s, a)|
    L_Q = sum_i mean[ 1/2 (Q_i - y)^2 ] + w D
    L_pi, L_alpha: as in SAC, with the smallest of the N values

Values of actions that were not recorded differ among the critics, so that the smallest one is pessimistic there. The
fewer critics there are, the more they have to differ: D keeps their slopes at recorded actions apart. w is
`diversity_weight`, 0 in SAC-N. The authors' code has no factor 1/2 before the squared error.
"""

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.families.soft_actor_critic import SquashedGaussianPolicy, SquashedGaussianStep
from minding.policies.learning.steps import Inputs
from minding.policies.ops import primitives
from minding.policies.ops.values import lowest

_EPSILON = 1e-12
"""Number that is added to the square of a norm."""


class EDACCell(SquashedGaussianStep):
    """Root cell: see `SoftActorCritic`."""

    metrics = (*SquashedGaussianStep.metrics, "alignment")
    of_critics = ("critic_loss", "q_value", "alignment")
    has_action_values = True

    def __init__(self, actor, critics, targets, learn, target_entropy) -> None:
        super().__init__(actor, critics, targets, learn, target_entropy)
        self.count, self.weight = len(critics.members), float(learn["diversity_weight"])
        self.slopes = ms.grad(self.total, 0)

    def td_target(self, batch):
        action, log_prob = self.drawn(batch["next_obs"], batch["next_noise"])
        q = self.targets(action, batch["next_obs"])
        return self.soft_target(batch["reward"], batch["discount"], batch["terminated"], q, log_prob, batch["alpha"])

    def loss_of_critics(self, batch):
        loss, q = self.critic_loss(self.critics(batch["action"], batch["obs"]), batch["target"])
        alignment = self.alignment(batch["action"], batch["obs"]) if self.weight > 0.0 else ops.ZerosLike()(loss)
        loss = loss + self.weight * alignment
        return loss, {"critic_loss": loss, "q_value": q, "alignment": ops.stop_gradient(alignment)}

    def alignment(self, action, obs):
        """D, a scalar."""
        action = ops.Reshape()(action, (action.shape[0], -1))
        slope = self.slopes(ops.BroadcastTo((self.count, *action.shape))(ops.ExpandDims()(action, 0)), obs)
        unit = slope / ops.Sqrt()(ops.ReduceSum(True)(ops.Square()(slope), -1) + _EPSILON)
        # The sum over all pairs is the square of the sum; a pair of a critic with itself is the square of its vector.
        pairs = ops.ReduceSum()(ops.Square()(ops.ReduceSum()(unit, 0)), -1)
        own = ops.ReduceSum()(ops.ReduceSum()(ops.Square()(unit), 0), -1)
        return primitives.mean(pairs - own) / (self.count - 1)

    def total(self, actions, obs):
        """The sum of all values, each critic with its own copy of the actions (N, B, A)."""
        total = 0.0
        for k in range(self.count):
            total = total + ops.ReduceSum()(self.critics.members[k](actions[k], obs))
        return total

    def action_value(self, action, obs):
        return lowest(self.critics(action, obs))


class EDAC(SquashedGaussianPolicy):
    """Ensemble-diversified actor-critic, from recorded data with Box actions in [-1, 1]."""

    name = "edac"
    step_class = EDACCell
    second_order = True

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        rows = (2, batch.index.shape[1], self.action_size)
        # Drawn step by step, so that the numbers do not depend on the number of steps per call.
        noise = np.stack([self.learn_rng.standard_normal(rows, dtype=np.float32) for _ in batch.index], axis=1)
        return Inputs({"next_noise": noise[0], "noise": noise[1]}, self.constants(progress))
