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
from minding.policies.families.q_learning import ActionValuePolicy, QLearning
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.ops import primitives
from minding.policies.ops.values import chosen_value, value_loss


class DQNCell(QLearning):
    """Root cell: see `QLearning`."""

    def td_target(self, batch):
        """y, float32 (B,)."""
        next_q = self.target(batch["next_obs"])[0]
        if self.double:
            choosing = self.net(batch["next_obs"])[0]
            next_value = chosen_value(next_q, ops.Argmax(-1)(choosing))
        else:
            next_value = primitives.largest(next_q)
        return batch["reward"] + batch["discount"] * (1.0 - batch["terminated"]) * next_value

    def loss(self, batch):
        loss, value, error = value_loss(self.net(batch["obs"])[0], batch["action"], self.td_target(batch))
        return self.averaged(batch, loss, value, error)


class DQN(ActionValuePolicy):
    """Deep Q-network for Discrete actions."""

    name = "dqn"

    def make_network(self, rng: np.random.Generator) -> QNetwork:
        return QNetwork(self.spec, self.cfg.model, rng)

    def make_learner(self, net: QNetwork, target: QNetwork, prioritized: bool) -> DQNCell:
        return DQNCell(net, target, self.cfg.learn, prioritized)
