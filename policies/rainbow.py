"""Rainbow: six extensions of DQN in one agent, each of which can be turned off.

Hessel et al., 2018, https://arxiv.org/abs/1710.02298; double, dueling and prioritized replay as in DQN; noisy networks:
Fortunato et al., 2018, https://arxiv.org/abs/1706.10295; the return distribution as in C51.

    m = project( R + gamma^k (1 - terminated) z, p_target(s', a*; e') ),   z_i = v_min + i (v_max - v_min) / (N - 1)
    a* = argmax_a sum_i z_i p_i(s', a; e'')                   (double; else of p_target with e')
    L = mean[ -w sum_i m_i log p_i(s, a; e) ],   priority KL(m || p)
                                        (not distributional: y, L and priority of DQN)
    y_i = (mu x + mu)_i + f_i (sigma (g x) + sigma)_i         (noisy layer; e = (g, f) anew for each step; else f = 0)
"""

from __future__ import annotations

import numpy as np

from minding.policies.core.action_values import ActionValuePolicy
from minding.policies.learning.q_learning import CategoricalQLearning, ExpectedQLearning, QLearning
from minding.policies.networks.return_distribution import (
    NoisyReturnDistribution,
    QuantileMean,
    ReturnDistribution,
    SupportMean,
)


class Rainbow(ActionValuePolicy):
    """Rainbow for Discrete actions."""

    name = "rainbow"

    def _network(self, rng: np.random.Generator) -> ReturnDistribution:
        model = self.cfg.model
        # A single quantile, the value itself, is the network of DQN.
        mean = SupportMean(model.v_min, model.v_max, model.n_atoms) if model.distributional else QuantileMean(1)
        kind = NoisyReturnDistribution if model.noisy else ReturnDistribution
        return kind(self.spec, model, mean, rng)

    def _learner(self, net: ReturnDistribution, target: ReturnDistribution, prioritized: bool) -> QLearning:
        kind = CategoricalQLearning if self.cfg.model.distributional else ExpectedQLearning
        return kind(net, target, self.cfg.learn, prioritized)
