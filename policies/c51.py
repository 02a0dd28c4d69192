"""C51: the distribution of the return as probabilities of N fixed atoms.

Bellemare et al., 2017, https://arxiv.org/abs/1707.06887, algorithm 1; double, dueling and prioritized replay as in DQN,
its priorities as in Hessel et al., 2018, https://arxiv.org/abs/1710.02298.

    m = project( R + gamma^k (1 - terminated) z, p_target(s', a*) ),   z_i = v_min + i (v_max - v_min) / (N - 1)
    a* = argmax_a sum_i z_i p_i(s', a)                       (double; else of p_target)
    L = mean[ -w sum_i m_i log p_i(s, a) ],   p = softmax(logits)
                                                             (w: importance weights of prioritized replay, else 1)
"""

import numpy as np

from minding.policies.families.q_learning import ActionValuePolicy, CategoricalQLearning
from minding.policies.networks.return_distribution import ReturnDistribution, SupportMean
from minding.policies.settings.q_learning import C51Settings


class C51(ActionValuePolicy):
    """Categorical DQN for Discrete actions."""

    cfg: C51Settings
    name = "c51"
    step_class = CategoricalQLearning

    def make_network(self, rng: np.random.Generator) -> ReturnDistribution:
        model = self.cfg.model
        return ReturnDistribution(self.spec, model, SupportMean(model.v_min, model.v_max, model.n_atoms), rng)
