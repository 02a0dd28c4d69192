"""DQN: Q-learning with a replay buffer and a target network; double, dueling, prioritized and Munchausen as switches.

Mnih et al., 2015, https://doi.org/10.1038/nature14236; double: van Hasselt et al., 2016,
https://arxiv.org/abs/1509.06461, eq. 4; dueling: Wang et al., 2016, https://arxiv.org/abs/1511.06581, eq. 9;
prioritized replay: Schaul et al., 2016, https://arxiv.org/abs/1511.05952, algorithm 1; Munchausen: Vieillard et al.,
2020, https://arxiv.org/abs/2007.14430, see `ExpectedQLearning.munchausen_target`.

    y = R + gamma^k (1 - terminated) Q_target(s', argmax_a Q(s', a))      (double; else argmax of Q_target)
    L = mean[ w huber(Q(s, a) - y) ]           (prioritized: w importance weights, priorities |Q(s, a) - y|; else w = 1)
"""

from minding.policies.families.q_learning import ActionValuePolicy, ExpectedQLearning
from minding.policies.networks.actor_critic import QNetwork


class DQN(ActionValuePolicy):
    """Deep Q-network for Discrete actions."""

    name = "dqn"
    step_class = ExpectedQLearning
    network_class = QNetwork
