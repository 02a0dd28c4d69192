"""SAC: maximum-entropy actor-critic with twin critics and a learned temperature.

Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905, algorithm 1 and eq. 5, 7, 18.

    y = R + gamma^k (1 - terminated) [ min_i Q_target_i(s', a') - alpha log pi(a'|s') ],   a' ~ pi(s')
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = mean[ alpha log pi(a|s) - min_i Q_i(s, a) ],   a ~ pi(s) reparametrised
    L_alpha = -log(alpha) (log pi(a|s) + H_target)

A gradient step computes all three gradients at the same parameters and then updates everything, see `SoftActorCritic`.
"""

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.policies.families.soft_actor_critic import SquashedGaussianPolicy, SquashedGaussianStep
from minding.policies.learning.steps import Inputs


class SACCell(SquashedGaussianStep):
    """Root cell: see `SoftActorCritic`."""

    def td_target(self, batch):
        action, log_prob = self.drawn(batch["next_obs"], batch["next_noise"])
        q = self.targets(action, batch["next_obs"])
        return self.soft_target(batch["reward"], batch["discount"], batch["terminated"], q, log_prob, batch["alpha"])


class SAC(SquashedGaussianPolicy):
    """Soft actor-critic for Box actions in [-1, 1]."""

    name = "sac"
    step_class = SACCell

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        shape = (*batch.index.shape, self.action_size)
        noise = self.learn_rng.standard_normal((2, *shape), dtype=np.float32)
        return Inputs({"next_noise": noise[0], "noise": noise[1]}, self.constants(progress))
