"""TQC: soft actor-critic whose critics learn quantiles of the return, the highest of which are left out of the target.

Kuznetsov et al., 2020, https://arxiv.org/abs/2005.04269, eq. 9 to 13.

    z_(1) <= ... <= z_(NM): the quantiles of all N target critics for (s', a'), sorted;   a' ~ pi(s')
    y_j = R + gamma^k (1 - terminated) [ z_(j) - alpha log pi(a'|s') ],   j = 1 .. N (M - d)
    L_Z = mean[ sum_n 1/M sum_m mean_j |tau_m - 1{u < 0}| huber(u) ],   u = y_j - theta_{n,m}(s, a)
    L_pi = mean[ alpha log pi(a|s) - 1/(NM) sum_{n,m} theta_{n,m}(s, a) ],   a ~ pi(s) reparametrised

A target without its d highest quantiles per critic takes less of what the critics overestimate.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.families.soft_actor_critic import SquashedGaussianPolicy, SquashedGaussianStep
from minding.policies.learning.steps import Inputs
from minding.policies.networks.actor_critic import ActionQuantiles, CriticEnsemble, SquashedActor
from minding.policies.ops.distributional import QuantileLoss, midpoints
from minding.policies.ops.values import mean_policy_loss, one_step


class TQCCell(SquashedGaussianStep):
    """Root cell: see `SquashedGaussianStep`."""

    def __init__(
        self,
        actor: SquashedActor,
        critics: CriticEnsemble,
        targets: CriticEnsemble,
        learn: Mapping[str, Any],
        target_entropy: float,
    ) -> None:
        super().__init__(actor, critics, targets, learn, target_entropy)
        quantiles = critics.members[0].value.bias.shape[0]
        self.count = len(critics.members)
        self.kept = self.count * (quantiles - learn["dropped_quantiles"])
        self.levels = ms.Tensor(midpoints(quantiles))
        self.quantile_loss = QuantileLoss(1.0)
        self.sort = ops.Sort(axis=-1)

    def td_target(self, batch):
        """y, float32 (B, N (M - d))."""
        action, log_prob = self.drawn(batch["next_obs"], batch["next_noise"])
        z = ops.Transpose()(self.targets(action, batch["next_obs"]), (1, 0, 2))
        rows = z.shape[0]
        lowest = ops.Slice()(self.sort(ops.Reshape()(z, (rows, -1)))[0], (0, 0), (rows, self.kept))
        return one_step(batch, lowest - ops.ExpandDims()(batch["alpha"] * log_prob, -1))

    def loss_of_critics(self, batch):
        target, total = ops.stop_gradient(batch["target"]), 0.0
        atoms = ops.Unstack()(self.critics(batch["action"], batch["obs"]))
        for k in range(self.count):
            loss, _, _ = self.quantile_loss(atoms[k], self.levels, target)
            total = total + loss.mean()
        total = total / self.levels.shape[0]
        return total, {"critic_loss": total, "q_value": ops.stop_gradient(atoms[0]).mean()}

    def loss_of_actor(self, batch):
        action, log_prob = self.drawn(batch["obs"], batch["noise"])
        q = ops.ReduceMean()(self.critics(action, batch["obs"]), -1)
        loss, log_prob = mean_policy_loss(q, log_prob, batch["alpha"])
        return loss, {"actor_loss": loss, "entropy": -log_prob}


class TQC(SquashedGaussianPolicy):
    """Truncated quantile critics for Box actions in [-1, 1]."""

    name = "tqc"
    step_class = TQCCell
    critic_class = ActionQuantiles

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        shape = (2, *batch.index.shape, self.action_size)
        noise = self.learn_rng.standard_normal(shape, dtype=np.float32)
        return Inputs({"next_noise": noise[0], "noise": noise[1]}, self.constants(progress))
