"""REDQ: soft actor-critic with an ensemble of critics and many gradient steps per environment step.

Chen et al., 2021, https://arxiv.org/abs/2101.05982, algorithm 1.

    y = R + gamma^k (1 - terminated) [ min_{i in M} Q_target_i(s', a') - alpha log pi(a'|s') ],   a' ~ pi(s')
    L_Q = mean[ sum_i 1/2 (Q_i - y)^2 ],   i = 1 .. N
    L_pi = mean[ alpha log pi(a|s) - 1/N sum_i Q_i(s, a) ],   a ~ pi(s) reparametrised
    L_alpha = -log(alpha) (log pi(a|s) + H_target)

M is a random subset of the critics, drawn again for each gradient step. With `model.dropout` the critics and their
targets drop units at random, also in L_pi (DroQ: Hiraoka et al., 2021, https://arxiv.org/abs/2110.02034). The critics are updated in each step, actor and
temperature in every `policy_delay`-th one, with the new critics.
"""

from __future__ import annotations

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ms, ops
from minding.policies.families.soft_actor_critic import SquashedGaussianPolicy, SquashedGaussianStep
from minding.policies.learning.steps import Inputs
from minding.policies.networks.layers import Dropout
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after
from minding.policies.ops.values import mean_policy_loss

LEFT_OUT = np.float32(1e30)
"""What is added to the values of critics outside the subset, so that none of them is the smallest."""


class REDQCell(SquashedGaussianStep):
    """Root cell: see `SquashedGaussianStep`; the step of the actor comes after that of the critics, where it is due."""

    of_actor = ("actor_loss", "alpha_loss", "entropy")

    def __init__(self, actor, critics, *others) -> None:
        super().__init__(actor, critics, *others)
        self.drops = any(isinstance(cell, Dropout) for _, cell in critics.cells_and_names())
        self.zeros = tuple(ms.Tensor(np.float32(0.0)) for _ in self.of_actor)

    def td_target(self, batch):
        """y, float32 (B,)."""
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

    def construct(self, batch):
        alpha = ops.exp(self.log_alpha)
        batch["alpha"] = alpha
        # Critics and their targets
        batch["target"] = self.td_target(batch)
        (_, metrics), grads = self.critic_gradient(batch)
        norm = self.optim({"critics": grads}, batch, (metrics, grads))["critics"]
        done = (norm, self.move_targets(batch["tau"], norm))
        # Actor and temperature
        values = self.zeros
        if after(batch["due"], done) > 0.0:
            values = self.move_actor(batch, done)
        metrics["alpha"] = alpha
        # A caller that waits for a metric waits for the whole step.
        for k in range(len(self.of_actor)):
            metrics[self.of_actor[k]] = after(primitives.item(values, k), done)
        return metrics

    def move_actor(self, batch, done):
        """Updates actor and temperature; returns the metrics `of_actor` in order, available after these updates.

        Args:
          batch: the batch of the step.
          done: a result of the critics' step, which comes first.
        """
        rows = {"obs": after(batch["obs"], done), "noise": batch["noise"], "alpha": batch["alpha"]}
        if self.drops:
            rows["seeds"] = batch["seeds"]
        (_, metrics), grads = self.actor_gradient(rows)
        excess = metrics["entropy"] - self.wanted_entropy
        values = (metrics["actor_loss"], self.log_alpha * excess, metrics["entropy"])
        norms = self.optim({"actor": grads, "alpha": (excess,)}, batch, (values, grads))
        return tuple([after(value, norms) for value in values])


class REDQ(SquashedGaussianPolicy):
    """Randomized ensembled double Q-learning for Box actions in [-1, 1]."""

    name = "redq"
    step_class = REDQCell
    counts_steps = True

    def inputs(self, batch: IndexedBatch, progress: float) -> Inputs:
        learn, count = self.cfg.learn, len(batch.index)
        noise = self.learn_rng.standard_normal((2, *batch.index.shape, self.action_size), dtype=np.float32)
        order = self.learn_rng.permuted(np.tile(np.arange(self.n_critics), (count, 1)), axis=1)
        due = (self.learn_steps + 1 + np.arange(count)) % learn.policy_delay == 0
        steps = {
            "next_noise": noise[0],
            "noise": noise[1],
            "left_out": np.where(order < learn.target_subset, np.float32(0.0), LEFT_OUT),
            "due": due.astype(np.float32),
        }
        if self.root.drops:
            steps["seeds"] = self.learn_rng.integers(-(2**31), 2**31, (count, 3), dtype=np.int32)
        return Inputs(steps, self.constants(progress), dict.fromkeys(self.root.of_actor, int(due.sum())))
