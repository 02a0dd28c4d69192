"""Rainbow: six extensions of DQN in one agent, each of which can be turned off.

Hessel et al., 2018, https://arxiv.org/abs/1710.02298; double, dueling and prioritized replay as in DQN; noisy networks:
Fortunato et al., 2018, https://arxiv.org/abs/1706.10295; the return distribution as in C51.

    m = project( R + gamma^k (1 - terminated) z, p_target(s', a*; e') ),   z_i = v_min + i (v_max - v_min) / (N - 1)
    a* = argmax_a sum_i z_i p_i(s', a; e'')                   (double; else of p_target with e')
    L = mean[ -w sum_i m_i log p_i(s, a; e) ],   priority KL(m || p)
                                        (not distributional: y, L and priority of DQN)
    y_i = (mu x + mu)_i + f_i (sigma (g x) + sigma)_i         (noisy layer; e = (g, f) drawn for each step; else f = 0)
"""

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.types import Array
from minding.policies.acting.sampling import weight_noise
from minding.policies.families.q_learning import (
    CHOICE_NOISE,
    NEXT_NOISE,
    NOISE,
    ActionValuePolicy,
    CategoricalQLearning,
    ExpectedQLearning,
    QLearning,
)
from minding.policies.networks.return_distribution import (
    NoisyReturnDistribution,
    QuantileMean,
    ReturnDistribution,
    SupportMean,
)
from minding.policies.settings.q_learning import RainbowSettings


class ExpectedRainbowCell(ExpectedQLearning):
    """Root cell without the return distribution: each action has one atom, its value."""

    def q(self, net, obs, noise):
        return net.action_values(obs, noise)


class Rainbow(ActionValuePolicy):
    """Rainbow for Discrete actions."""

    cfg: RainbowSettings
    name = "rainbow"

    def make_network(self, rng: np.random.Generator) -> ReturnDistribution:
        model = self.cfg.model
        # With a single quantile, which is the value itself, this is the network of DQN.
        mean = SupportMean(model.v_min, model.v_max, model.n_atoms) if model.distributional else QuantileMean(1)
        kind = NoisyReturnDistribution if model.noisy else ReturnDistribution
        return kind(self.spec, model, mean, rng)

    @property
    def step_class(self) -> type[QLearning]:
        return CategoricalQLearning if self.cfg.model.distributional else ExpectedRainbowCell

    def draw(self, batch: IndexedBatch) -> dict[str, Array]:
        """The noise of noisy layers, ``(K, 1, S)`` each; it is the same for all rows of a gradient step."""
        if not self.net.noise_size:
            return {}
        names = (NOISE, NEXT_NOISE, CHOICE_NOISE) if self.cfg.learn.double else (NOISE, NEXT_NOISE)
        noise = weight_noise((len(names), len(batch.index), 1, self.net.noise_size), self.learn_rng)
        return dict(zip(names, noise))
