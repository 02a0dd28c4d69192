"""Discrete CQL: Q-learning from recorded data, with a penalty on high values of actions that were not recorded.

Kumar et al., 2020, https://arxiv.org/abs/2006.04779, eq. 4 (CQL(H)), with double Q-learning and a soft target.

    y = R + gamma (1 - terminated) Q_target(s', argmax_a Q(s', a))
    L = mean[ huber(Q(s, a) - y) ] + alpha mean[ log sum_a' exp Q(s, a') - Q(s, a) ]

The sum and the argmax leave out illegal actions.
"""

from collections.abc import Mapping
from typing import Any

from minding.engine.process.runtime import nn, ops
from minding.policies.families.q_learning import ActionValuePolicy, QLearning
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.ops import primitives
from minding.policies.ops.values import chosen_value, log_sum_exp, one_step, value_loss


class DiscreteCQLCell(QLearning):
    """Root cell: see `QLearning`."""

    metrics = (*QLearning.metrics, "conservative_gap")
    has_action_values = True

    def __init__(self, net: nn.Cell, target: nn.Cell, learn: Mapping[str, Any], prioritized: bool) -> None:
        super().__init__(net, target, learn, prioritized)
        self.alpha = float(learn["alpha"])

    def td_target(self, batch):
        chosen = ops.Argmax(-1)(self.net(batch["next_obs"])[0])
        return one_step(batch, chosen_value(self.target(batch["next_obs"])[0], chosen))

    def action_value(self, action, obs):
        return chosen_value(self.net(obs)[0], action)

    def loss(self, batch):
        q = self.net(batch["obs"])[0]
        losses, value, _ = value_loss(q, batch["action"], self.td_target(batch))
        gap = primitives.mean(log_sum_exp(q) - value)
        loss = primitives.mean(losses) + self.alpha * gap
        metrics = self.named((loss, primitives.mean(value)))
        metrics["conservative_gap"] = gap
        return loss, metrics


class DiscreteCQL(ActionValuePolicy):
    """Conservative Q-learning, from recorded data with Discrete actions."""

    name = "discrete_cql"
    step_class = DiscreteCQLCell
    network_class = QNetwork
