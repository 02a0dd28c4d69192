"""ICM: the intrinsic curiosity module, a reward for steps whose outcome the agent cannot predict.

Pathak et al., 2017, https://arxiv.org/abs/1705.05363: a forward model predicts the features phi of the successor from
the features of the state and the action. An inverse model predicts the action from the features of both states, so
that the features hold what actions can change, and not, for example, noise.

    e(s, a, s') = 1/2 |f(phi(s), a) - phi(s')|^2                                                    (eq. 5, 6)
    L = (1 - beta) mean[ -log p(a | phi(s), phi(s')) ] + beta mean[ e ]                             (eq. 3, 5, 7)

p is categorical for choices, and normal with variance 1 for numbers, so that their loss is half the squared error and a
constant. As in the paper's code, the gradient of e also reaches phi. `novelty` turns errors into rewards and normalizes
observations.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import nn, ops
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.networks.encoder import ActionNumbers
from minding.policies.networks.heads import make_action_head
from minding.policies.networks.layers import MLP, Linear
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.rewards.novelty import Features, NoveltyReward, NoveltyStep


class ICMCell(NoveltyStep):
    """Root cell: features, forward and inverse model, and their optimizer."""

    metrics = ("icm_loss", "icm_forward", "icm_inverse")

    def __init__(self, spec: Mapping[str, Any], model: Any, cfg: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.beta = float(cfg.beta)
        self.features = Features(spec["observation"], model, cfg.hidden, cfg.dim, rng)
        self.numbers = ActionNumbers(spec["action"])
        body = MLP(cfg.dim + self.numbers.out_features, cfg.hidden, "relu", math.sqrt(2), rng)
        self.ahead = nn.SequentialCell(body, Linear(body.out_features, cfg.dim, 1.0, rng))
        self.inverse = MLP(2 * cfg.dim, cfg.hidden, "relu", math.sqrt(2), rng)
        self.head = make_action_head(spec["action"], self.inverse.out_features, rng)
        # The deviation of numbers stays 1.
        params = [p for p in self.trainable_params() if not p.name.endswith("log_std")]
        self.optim = Optimizer(net=Group(params=params, rate=cfg.learning_rate))
        self.gradient = self.optim.gradient(self.loss, "net")

    def predicted(self, rows):
        """The errors e, float32 (B,), and the features of both states, (B, dim) each."""
        now, then = self.features(rows["obs"]), self.features(rows["next_obs"])
        guess = self.ahead(ops.Concat(-1)((now, self.numbers(rows["action"]))))
        return 0.5 * ops.ReduceSum()(ops.square(guess - then), -1), now, then

    def errors(self, rows):
        return self.predicted(rows)[0]

    def loss(self, batch):
        errors, now, then = self.predicted(batch)
        params = self.head(self.inverse(ops.Concat(-1)((now, then))))
        inverse = row_mean(-self.head.log_prob_entropy(params, batch["action"])[0], batch)
        ahead = row_mean(errors, batch)
        loss = (1.0 - self.beta) * inverse + self.beta * ahead
        return loss, self.named((loss, ahead, inverse))

    def learned(self, batch):
        (_, metrics), grads = self.gradient(batch)
        self.optim({"net": grads}, batch, metrics["icm_loss"])
        return metrics


class ICM(NoveltyReward):
    """The intrinsic curiosity module."""

    name = "icm"
    fields = ("obs", "action", "next_obs")

    def make_cell(self, cfg: Any, rng: np.random.Generator) -> ICMCell:
        return ICMCell(self.spec, cfg.policy.model, self.cfg, rng)
