"""RND: random network distillation, a reward for observations that the agent has rarely seen.

Burda et al., 2018, https://arxiv.org/abs/1810.12894: a network learns to predict the outputs of a second network, whose
weights are random and fixed.

    e(s') = mean_k( f_k(s'; theta) - g_k(s') )^2       prediction error; theta minimizes its mean over the rollout

`novelty` turns errors into rewards and normalizes observations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.rewards.novelty import Features, NoveltyReward, NoveltyStep


class RNDCell(NoveltyStep):
    """Root cell: the predictor, the random target network, and the optimizer of the predictor."""

    metrics = ("rnd_loss",)

    def __init__(self, space: Mapping[str, Any], model: Any, cfg: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.target = Features(space, model, cfg.hidden, cfg.dim, rng)
        # One layer more than the target, as in the paper.
        self.predictor = Features(space, model, [*cfg.hidden, cfg.hidden[-1]], cfg.dim, rng)
        group = Group(params=self.predictor.trainable_params(), rate=cfg.learning_rate)
        self.optim = Optimizer(predictor=group)
        self.gradient = self.optim.gradient(self.loss, "predictor")

    def errors(self, rows):
        leaves = rows["next_obs"]
        return ops.ReduceMean()(ops.square(self.predictor(leaves) - self.target(leaves)), -1)

    def loss(self, batch):
        loss = row_mean(self.errors(batch), batch)
        return loss, {"rnd_loss": loss}

    def learned(self, batch):
        (_, metrics), grads = self.gradient(batch)
        self.optim({"predictor": grads}, batch, metrics["rnd_loss"])
        return metrics


class RND(NoveltyReward):
    """Random network distillation."""

    name = "rnd"
    fields = ("next_obs",)

    def make_cell(self, cfg: Any, rng: np.random.Generator) -> RNDCell:
        return RNDCell(self.spec["observation"], cfg.policy.model, self.cfg, rng)
