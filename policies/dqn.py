"""DQN: Q-learning with a replay buffer and a target network; double, dueling and prioritized replay as switches.

Mnih et al., 2015, https://doi.org/10.1038/nature14236; double: van Hasselt et al., 2016,
https://arxiv.org/abs/1509.06461, eq. 4; dueling: Wang et al., 2016, https://arxiv.org/abs/1511.06581, eq. 9;
prioritized replay: Schaul et al., 2016, https://arxiv.org/abs/1511.05952, algorithm 1.

    y = R + gamma^k (1 - terminated) Q_target(s', argmax_a Q(s', a))      (double; else argmax of Q_target)
    L = mean[ w huber(Q(s, a) - y) ]           (prioritized: w importance weights, priorities |Q(s, a) - y|; else w = 1)
"""

from __future__ import annotations

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.core.action_values import ActionValuePolicy
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.networks.q_learning import QLearning
from minding.policies.ops import lean
from minding.policies.ops.values import chosen_value, huber


def dqn_loss(q, action, target):
    """Huber loss between chosen values and targets.

    Args:
      q: float32 (B, A); action: int32 (B,); target: float32 (B,), no gradient flows into it.

    Returns:
      (loss, chosen value, size of the error), each float32 (B,).
    """
    chosen = chosen_value(q, action)
    error = chosen - ops.stop_gradient(target)
    return huber(error), chosen, ops.Abs()(ops.stop_gradient(error))


class DQNCell(QLearning):
    """Root cell of DQN."""

    def backup(self, batch):
        next_q = self.target(batch["next_obs"])[0]
        if self.double:
            next_value = chosen_value(next_q, ops.Argmax(-1)(self.net(batch["next_obs"])[0]))
        else:
            next_value = lean.largest(next_q)
        return batch["reward"] + batch["discount"] * (1.0 - batch["terminated"]) * next_value

    def errors(self, batch):
        return dqn_loss(self.net(batch["obs"])[0], batch["action"], batch["target"])


class DQN(ActionValuePolicy):
    """Deep Q-network for Discrete actions."""

    name = "dqn"

    def _network(self, rng: np.random.Generator) -> QNetwork:
        return QNetwork(self.spec, self.cfg.model, rng)

    def _learner(self, net: QNetwork, target: QNetwork, prioritized: bool) -> DQNCell:
        return DQNCell(net, target, self.cfg.learn, prioritized)
