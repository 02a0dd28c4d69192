"""IQL: values by expectile regression over recorded actions only, and an actor that imitates better actions more.

Kostrikov et al., 2021, https://arxiv.org/abs/2110.06169, eq. 5 to 7 and algorithm 1.

    u = min_i Q_target_i(s, a) - V(s)
    L_V = mean[ |tau - 1(u < 0)| u^2 ]
    y = R + gamma (1 - terminated) V(s')
    L_Q = mean[ 1/2 (Q_1 - y)^2 + 1/2 (Q_2 - y)^2 ]
    L_pi = -mean[ min(exp(beta u), limit) log pi(a|s) ]

tau is `expectile` and beta is `weight_scale`. A step computes all gradients at the same parameters; in the authors'
code, actor and critics use V after its step. The mean of their actor is a tanh; here the mean is not bounded, but
actions are.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.families.weighted_regression import WeightedRegression, WeightedRegressionPolicy
from minding.policies.networks.actor_critic import CriticEnsemble, PolicyNetwork, StateValue
from minding.policies.ops import primitives
from minding.policies.ops.values import lowest, one_step


def expectile_loss(difference, expectile):
    """|tau - 1(u < 0)| u^2 for any shape. The constant that minimizes its mean is the tau-expectile.

    Args:
      difference: u, float32.
    """
    weight = ops.select(ops.stop_gradient(difference) < 0.0, 1.0 - expectile, expectile)
    return weight * ops.Square()(difference)


class IQLCell(WeightedRegression):
    """Root cell: a `WeightedRegression` with an additional network for state values."""

    metrics = (*WeightedRegression.metrics, "value_loss", "value")
    value: StateValue

    def __init__(
        self,
        actor: PolicyNetwork,
        critics: CriticEnsemble,
        targets: CriticEnsemble,
        learn: Mapping[str, Any],
        value: StateValue,
    ) -> None:
        super().__init__(actor, critics, targets, learn, {"value": value})
        self.expectile = float(learn["expectile"])
        self.value_gradient = self.optim.gradient(self.loss_of_value, "value")

    def td_target(self, batch):
        return one_step(batch, self.value(batch["next_obs"]))

    def prepare(self, batch):
        batch["q"] = lowest(self.targets(batch["action"], batch["obs"]))
        return batch

    def advantage(self, batch):
        return batch["q"] - self.value(batch["obs"])

    def loss_of_value(self, batch):
        value = self.value(batch["obs"])
        loss = primitives.mean(expectile_loss(ops.stop_gradient(batch["q"]) - value, self.expectile))
        return loss, {"value_loss": loss, "value": ops.stop_gradient(primitives.mean(value))}

    def own_gradients(self, batch):
        (_, metrics), grads = self.value_gradient(batch)
        return metrics, {"value": grads}


class IQL(WeightedRegressionPolicy):
    """Implicit Q-learning, from recorded data with Box actions in [-1, 1]."""

    name = "iql"
    step_class = IQLCell

    def more(self, rng: np.random.Generator) -> tuple[StateValue]:
        return (StateValue(self.spec, self.cfg.model, rng),)
