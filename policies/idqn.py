"""IDQN, independent Q-learning: each agent learns independently, as if the others were part of the environment.

Tan, 1993, https://web.media.mit.edu/~cynthiab/Readings/tan-MAS-reinfLearn.pdf, with deep networks: Tampuu et al., 2017,
https://arxiv.org/abs/1511.08779; double Q-learning: van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461.

    Q_m(o, a) by a GRU over the agent's own observations and actions; weights are shared
    y_{m,t} = r_{m,t} + gamma (1 - terminated) g_{m,t+1} Q_m'(o_{t+1}, a*),   a* = argmax_a Q_m(o_{t+1}, a)
    L = mean_{b,t,m} (Q_m(o_t, a_t) - y_{m,t})^2        over the steps of whole episodes at which agent m is present

g_m is 1 where agent m is present and 0 where it is absent: for an agent that leaves, the episode is over. Without
`learn.double`, a* maximizes Q', the target network. A reward of the whole team counts as the reward of each agent.
"""

from minding.engine.process.runtime import ops
from minding.policies.families.team import TeamQLearning, TeamValuePolicy, total


class IDQNCell(TeamQLearning):
    """Root cell: see `TeamQLearning`."""

    def loss(self, batch):
        done, best = self.values(batch)
        there, reward, decay = batch["there"], batch["reward"], ops.ExpandDims()(batch["decay"], -1)
        if reward.ndim == 1:
            reward = ops.ExpandDims()(reward, -1)
        target = self.targets(reward, decay * batch["there_then"], best, batch["filled"])
        error = there * (done - target)
        shape = (*batch["filled"].shape, self.agents)
        count = total(ops.Reshape()(there, shape))
        loss = total(ops.Reshape()(ops.Square()(error), shape)) / count
        return loss, {"loss": loss, "q_value": total(ops.Reshape()(there * done, shape)) / count}


class IDQN(TeamValuePolicy):
    """Independent Q-learning for Discrete actions."""

    name = "idqn"
    step_class = IDQNCell
