"""DQN: Q-learning with a replay buffer and a target network; double and dueling as switches.

Mnih et al., 2015, https://doi.org/10.1038/nature14236; double: van Hasselt et al., 2016,
https://arxiv.org/abs/1509.06461, eq. 4; dueling: Wang et al., 2016, https://arxiv.org/abs/1511.06581, eq. 9.

    y = R + gamma^k (1 - terminated) Q_target(s', argmax_a Q(s', a))      (double; else argmax of Q_target)
    L = mean[ huber(Q(s, a) - y) ]
"""

from __future__ import annotations

import numpy as np

from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array, StateDict
from minding.policies.core.actors import GreedyActor, Network
from minding.policies.core.base import BasePolicy
from minding.policies.networks.actor_critic import QNetwork
from minding.policies.networks.optim import Adam
from minding.policies.networks.rows import Rows
from minding.policies.networks.target import CopyTarget, SoftTarget, equalize
from minding.policies.ops import lean
from minding.policies.ops.values import chosen_value, huber

METRICS = ("loss", "q_value", "grad_norm")


def dqn_loss(q, action, target):
    """Huber loss between chosen values and targets.

    Args:
      q: float32 (B, A); action: int32 (B,); target: float32 (B,), no gradient flows into it.

    Returns:
      (loss, mean chosen value), scalars.
    """
    chosen = chosen_value(q, action)
    return lean.mean(huber(chosen - ops.stop_gradient(target))), lean.mean(chosen)


class DQNCell(nn.Cell):
    """Root cell: online and target network, optimizer; `construct` performs all gradient steps of an iteration."""

    def __init__(self, net: QNetwork, target: QNetwork, policy: DQN) -> None:
        super().__init__()
        learn = policy.cfg.learn
        self.net = net
        self.target = target
        self.optim = Adam(net.trainable_params(), max_grad_norm=learn.grad_norm)
        self.move_target = (SoftTarget if learn.target.kind == "soft" else CopyTarget)(net, target, self.optim.block)
        obs_names = [*policy.obs_fields("obs"), *policy.obs_fields("next_obs")]
        names = [*obs_names, "action", "reward", "terminated", "discount"]
        self.rows = Rows(policy.layout, names)
        self.num_leaves = len(policy.leaves)
        self.double = bool(learn.double)
        # The step and the sums of the metrics before the first one.
        self.zeros = (ms.Tensor(np.int32(0)), ms.Tensor(np.zeros(len(METRICS), np.float32)))
        self.gradient = ms.value_and_grad(self.loss, None, self.optim.params, has_aux=True)

    def loss(self, obs, action, target):
        return dqn_loss(self.net(obs)[0], action, target)

    def construct(self, inputs, tables):
        """Inputs: index int32 (K, B); learning rate (1,); and, if the target moves in this call, tau float32 (K,):
        share of the online weights that moves into it after each step. With K = 1 the index has no axis for it: a graph
        without a loop starts faster. Returns the sums of `METRICS`."""
        index, learning_rate = inputs[0], inputs[1]
        if index.ndim == 1:
            total = self.step(index, learning_rate, tables)
            if len(inputs) == 3:
                self.move_target(lean.entry(inputs[2], self.zeros[0]), total)
            return total
        i, total = self.zeros
        while i < index.shape[0]:
            total = total + self.step(lean.entry(index, i), learning_rate, tables)
            if len(inputs) == 3:
                self.move_target(lean.entry(inputs[2], i), total)
            i = i + 1
        return total

    def step(self, index, learning_rate, tables):
        n = self.num_leaves
        # Forward
        fields = self.rows(index, tables)
        next_obs = fields[n : 2 * n]
        action, reward, terminated, discount = fields[2 * n :]
        # Target
        next_q = self.target(next_obs)[0]
        if self.double:
            next_value = chosen_value(next_q, ops.Argmax(-1)(self.net(next_obs)[0]))
        else:
            next_value = lean.largest(next_q)
        target = reward + discount * (1.0 - terminated) * next_value
        # Loss
        (loss, q), grads = self.gradient(fields[:n], action, target)
        # Update
        norm = self.optim(grads, learning_rate, (loss, q))
        return lean.stacked((loss, q, norm))


class DQN(BasePolicy):
    """Deep Q-network for Discrete actions."""

    name = "dqn"
    _learn_steps = 0

    def _network(self, rng: np.random.Generator) -> QNetwork:
        return QNetwork(self.spec, self.cfg.model, rng)

    def _root(self, net: QNetwork, rng: np.random.Generator) -> DQNCell:
        root = DQNCell(net, QNetwork(self.spec, self.cfg.model, rng), self)
        equalize(root.net, root.target)
        return root

    def _actor(self, network: Network, rng: np.random.Generator) -> GreedyActor:
        return GreedyActor(self.name, network, self.spec, rng)

    @property
    def row_fields(self) -> dict[str, Field]:
        return self.transition_fields

    def _tau(self, steps: int) -> Array:
        """Share of the online weights that moves into the target after each of the next `steps` gradient steps."""
        target = self.cfg.learn.target
        if target.kind == "soft":
            return np.full(steps, target.tau, np.float32)
        number = self._learn_steps + 1 + np.arange(steps)
        return (number % target.freq == 0).astype(np.float32)

    def _learn(self, batch: IndexedBatch, progress: float) -> dict[str, float]:
        steps = len(batch.index)
        tau = self._tau(steps)
        rate = np.array(self.learning_rate(progress), np.float32)
        # Most calls move nothing; their graph has no branch for it, which makes it faster.
        moves = (tau,) if tau.any() else ()
        index = batch.index[0] if steps == 1 else batch.index
        total = self._update(batch.tables, index, rate, *moves)
        self._learn_steps += steps
        self.update_normalizers(batch)
        return {**{name: float(v) / steps for name, v in zip(METRICS, total)}, "grad_steps": steps}

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "learn_steps": self._learn_steps}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._learn_steps = int(state["learn_steps"])
