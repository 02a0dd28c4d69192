"""REDQ: soft actor-critic with an ensemble of critics and many gradient steps per environment step.

Chen et al., 2021, https://arxiv.org/abs/2101.05982, algorithm 1.

    y = R + gamma^k (1 - terminated) [ min_{i in M} Q_target_i(s', a') - alpha log pi(a'|s') ],   a' ~ pi(s')
    L_Q = mean[ sum_i 1/2 (Q_i - y)^2 ],   i = 1 .. N
    L_pi = mean[ alpha log pi(a|s) - 1/N sum_i Q_i(s, a) ],   a ~ pi(s) reparametrised
    L_alpha = -log(alpha) (log pi(a|s) + H_target)

M is a random subset of the critics, drawn again for each gradient step. The critics are updated in each step, actor and
temperature in every `policy_delay`-th one, with the new critics. With `model.dropout` critics and targets drop units at
random, also in L_pi (DroQ: Hiraoka et al., 2021, https://arxiv.org/abs/2110.02034, algorithm 2).
"""

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ops
from minding.policies.families.soft_actor_critic import DelayedActorStep, SquashedGaussianPolicy
from minding.policies.learning.steps import Inputs
from minding.policies.networks.layers import Dropout
from minding.policies.ops import primitives
from minding.policies.ops.values import mean_policy_loss

LEFT_OUT = np.float32(1e30)
"""What is added to the values of critics outside the subset, so that none of them is the smallest."""


class REDQCell(DelayedActorStep):
    """Root cell: see `DelayedActorStep`."""

    def __init__(self, actor, critics, *others) -> None:
        super().__init__(actor, critics, *others)
        self.drops = any(isinstance(cell, Dropout) for _, cell in critics.cells_and_names())

    def td_target(self, batch):
        action, log_prob = self.drawn(batch["next_obs"], batch["next_noise"])
        q = self.targets(action, batch["next_obs"], *self.seed(batch, 0)) + ops.ExpandDims()(batch["left_out"], 1)
        return self.soft_target(batch["reward"], batch["discount"], batch["terminated"], q, log_prob, batch["alpha"])

    def loss_of_critics(self, batch):
        loss, q = self.critic_loss(self.critics(batch["action"], batch["obs"], *self.seed(batch, 1)), batch["target"])
        return loss, {"critic_loss": loss, "q_value": q}

    def loss_of_actor(self, batch):
        action, log_prob = self.drawn(batch["obs"], batch["noise"])
        q = self.critics(action, batch["obs"], *self.seed(batch, 2))
        loss, log_prob = mean_policy_loss(q, log_prob, batch["alpha"])
        return loss, {"actor_loss": loss, "entropy": -log_prob}

    def seed(self, batch, k):
        """The seed of the dropout: k is 0 for targets, 1 for critics and 2 for the critics that judge the actor."""
        return (primitives.part(batch["seeds"], k, 1),) if self.drops else ()


class REDQ(SquashedGaussianPolicy):
    """Randomized ensembled double Q-learning for Box actions in [-1, 1]."""

    name = "redq"
    step_class = REDQCell
    counts_steps = True

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, count = self.cfg.learn, len(batch.index)
        noise = self.learn_rng.standard_normal((2, *batch.index.shape, self.action_size), dtype=np.float32)
        order = self.learn_rng.permuted(np.tile(np.arange(self.n_critics), (count, 1)), axis=1)
        due = self.due(count)
        steps = {
            "next_noise": noise[0],
            "noise": noise[1],
            "left_out": np.where(order < learn.target_subset, np.float32(0.0), LEFT_OUT),
            "due": due,
        }
        if self.root.drops:
            steps["seeds"] = self.learn_rng.integers(-(2**31), 2**31, (count, 3), dtype=np.int32)
        return Inputs(steps, self.constants(progress), dict.fromkeys(self.root.of_actor, int(due.sum())))
