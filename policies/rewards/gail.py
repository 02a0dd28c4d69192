"""GAIL: generative adversarial imitation, a reward for steps that look like an expert's.

Ho and Ermon, 2016, https://arxiv.org/abs/1606.03476, algorithm 1: a discriminator learns to distinguish the expert's
recorded steps from the agent's, and its output determines the agent's reward.

    D(s, a) = sigmoid(f(s, a))
    L_f = -mean_expert[ log D ] - mean_agent[ log(1 - D) ] + c mean_between[ (|grad f| - 1)^2 ]
    r = -log(1 - D)   (positive)      r = log D   (negative)      r = log D - log(1 - D) = f   (logit)

The penalty (Gulrajani et al., 2017, https://arxiv.org/abs/1704.00028, eq. 3) is computed at points between features of
the expert's and the agent's steps; c = 0 leaves it out. Each gradient step draws equally many steps of both.

A reward that is always positive favors long episodes, and a reward that is always negative favors short ones. So
`positive` alone may teach the task if ending an episode is bad, and `negative` if it is good. `logit` has both signs.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.data.dataset import Dataset
from minding.engine.data.rollout import Rollout
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.learning.steps import Inputs
from minding.policies.networks.encoder import ActionNumbers, ObsEncoder
from minding.policies.networks.layers import MLP, ScalarLinear
from minding.policies.ops import primitives
from minding.policies.rewards.recorded_reward import RecordedReward, RecordedStep, told_apart

_EPSILON = 1e-8


class Discriminator(nn.Cell):
    """f(s, a): float32 (B,), above 0 for steps that look like the expert's."""

    def __init__(self, spec: Mapping[str, Any], model: Any, hidden: list[int], rng: np.random.Generator) -> None:
        super().__init__()
        self.numbers = ActionNumbers(spec["action"])
        self.encoder = ObsEncoder(spec["observation"], model, rng, whitened=True)
        self.body = MLP(self.encoder.out_features + self.numbers.out_features, hidden, "tanh", math.sqrt(2), rng)
        self.head = ScalarLinear(self.body.out_features, 1.0, rng)

    def features(self, obs, action):
        """The input of `logit`: the encoded observation joined with the action; discrete actions are one-hot."""
        return ops.Concat(-1)((self.encoder(obs), self.numbers(action)))

    def logit(self, features):
        """f, float32 (B,)."""
        return self.head(self.body(features))

    def construct(self, *fields):
        return self.logit(self.features(fields[:-1], fields[-1]))


class GAILCell(RecordedStep):
    """Root cell: the discriminator and its optimizer. The first half of a minibatch are the expert's steps."""

    metrics = ("gail_loss", "gail_expert", "gail_agent")

    def __init__(self, net: Discriminator, cfg: Any) -> None:
        super().__init__(net, cfg)
        self.penalty = float(cfg.gradient_penalty)
        self.slope = ms.grad(self.total)

    def total(self, features):
        """The sum of f over rows; its gradient has the gradient of f for each row."""
        return ops.ReduceSum()(self.net.logit(features))

    def loss(self, batch):
        features = self.net.features(batch["obs"], batch["action"])
        half = features.shape[0] // 2
        loss, of_expert, of_agent = told_apart(self.net.logit(features))
        if self.penalty > 0.0:
            share = ops.ExpandDims()(batch["share"], -1)
            between = share * primitives.part(features, 0, half) + (1.0 - share) * primitives.part(features, half, half)
            slope = self.slope(ops.stop_gradient(between))
            norm = ops.Sqrt()(ops.ReduceSum()(ops.Square()(slope), -1) + _EPSILON)
            loss = loss + self.penalty * primitives.mean(ops.Square()(norm - 1.0))
        return loss, self.named((loss, of_expert, of_agent))


class GAIL(RecordedReward):
    """Rewards similarity to an expert's data, and learns to distinguish both."""

    name = "gail"
    fields = ("obs", "action")

    def __init__(self, cfg: Any, dataset: Dataset) -> None:
        super().__init__(cfg, dataset)
        self.kind = self.cfg.reward

    def make_root(self, cfg: Any, rng: np.random.Generator) -> GAILCell:
        return GAILCell(Discriminator(self.spec, cfg.policy.model, self.cfg.hidden, rng), self.cfg)

    def reward(self, data: dict[str, Array], rows: Array, rollout: Rollout) -> tuple[Array, Mapping[str, float]]:
        agent = self._whitened(data)
        logit = self.scores(agent)[rows]
        self.check_finite(logit)
        tables, index = self.with_recorded(agent), self.drawn(rows)
        inputs = Inputs(constants=dict(self.root.optim.rates(0.0)))
        if self.root.penalty > 0.0:
            share = self._rng.random((len(index), self._size), dtype=np.float32)
            inputs = dataclasses.replace(inputs, steps={"share": share})
        metrics = self._update(IndexedBatch(self._layout, tables, index), inputs).metrics
        # Rows in which an environment was reset have no reward.
        reward = np.zeros(len(agent["action"]))
        reward[rows] = _REWARDS[self.kind](logit)
        return reward, metrics


def _softplus(x: Array) -> Array:
    softplus: Array = np.logaddexp(0.0, x)
    return softplus


_REWARDS: Mapping[str, Callable[[Array], Array]] = {
    "positive": _softplus,
    "negative": lambda logit: -_softplus(-logit),
    "logit": lambda logit: logit,
}
"""Functions from f to the reward, by `policy.other.gail.reward`. In float64, none of them becomes infinite."""
