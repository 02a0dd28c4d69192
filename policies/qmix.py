"""QMIX: the value of a team is a monotonic function of the values of its agents, which act independently.

Rashid et al., 2018, https://arxiv.org/abs/1803.11485, section 4 (the longer article: Rashid et al., 2020,
https://arxiv.org/abs/2003.08839); double Q-learning: van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461.

    Q_m(o, a) by a GRU over the agent's own observations and actions; weights are shared
    Q_tot = mix(g_1 Q_1, ..., g_M Q_M; s),   dQ_tot / dQ_m >= 0,   g_m = 1 where agent m is present, else 0
    y_t = r_t + gamma (1 - terminated) Q_tot'(s_{t+1}; a*),   a*_m = argmax_a Q_m(o_{t+1}, a)     (double; else of Q')
    L = mean_{b,t} (Q_tot(s_t; a_t) - y_t)^2        over the steps of whole episodes; Q' are target networks
"""

from minding.policies.families.team import TeamQLearning, TeamValuePolicy
from minding.policies.networks.team_networks import MonotonicMixer


class QMIXCell(TeamQLearning):
    """Root cell: see `TeamQLearning`."""

    def loss(self, batch):
        done, best = self.values(batch)
        value = self.mixer(batch["there"] * done, batch["state"])
        return self.team_loss(value, self.target_mixer(batch["there_then"] * best, batch["state_then"]), batch)


class QMIX(TeamValuePolicy):
    """Monotonic value function factorisation for Discrete actions."""

    name = "qmix"
    step_class = QMIXCell
    mixer_class = MonotonicMixer
