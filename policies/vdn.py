"""VDN: the value of a team is the sum of the values of its agents, which act independently.

Sunehag et al., 2018, https://arxiv.org/abs/1706.05296, section 3; double Q-learning: van Hasselt et al., 2016,
https://arxiv.org/abs/1509.06461.

    Q_m(o, a) by a GRU over the agent's own observations and actions; weights are shared
    Q_tot = sum_m g_m Q_m,   g_m = 1 where agent m is present, else 0
    y_t = r_t + gamma (1 - terminated) Q_tot'(a*),   a*_m = argmax_a Q_m(o_{t+1}, a)              (double; else of Q')
    L = mean_{b,t} (Q_tot(a_t) - y_t)^2             over the steps of whole episodes; Q' are target networks
"""

from minding.engine.process.runtime import ops
from minding.policies.families.team import TeamQLearning, TeamValuePolicy


class VDNCell(TeamQLearning):
    """Root cell: see `TeamQLearning`."""

    def loss(self, batch):
        done, best = self.values(batch)
        value = ops.ReduceSum()(batch["there"] * done, -1)
        return self.team_loss(value, ops.ReduceSum()(batch["there_then"] * best, -1), batch)


class VDN(TeamValuePolicy):
    """Value decomposition network for Discrete actions."""

    name = "vdn"
    step_class = VDNCell
