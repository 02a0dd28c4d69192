"""C51: the distribution of the return as probabilities of N fixed atoms.

Bellemare et al., 2017, https://arxiv.org/abs/1707.06887, algorithm 1; double, dueling and prioritized replay as in DQN,
its priorities as in Hessel et al., 2018, https://arxiv.org/abs/1710.02298.

    m = project( R + gamma^k (1 - terminated) z, p_target(s', a*) ),   z_i = v_min + i (v_max - v_min) / (N - 1)
    a* = argmax_a sum_i z_i p_i(s', a)                       (double; else of p_target)
    L = mean[ -w sum_i m_i log p_i(s, a) ],   p = softmax(logits)
                                                             (w: importance weights of prioritized replay, else 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.core.action_values import ActionValuePolicy
from minding.policies.networks.q_learning import DistributionalQLearning
from minding.policies.networks.return_distribution import ReturnDistribution, SupportMean
from minding.policies.ops.categorical import cross_entropy, project


class C51Cell(DistributionalQLearning):
    """Root cell of C51."""

    def __init__(
        self, net: ReturnDistribution, target: ReturnDistribution, learn: Mapping[str, Any], prioritized: bool
    ) -> None:
        super().__init__(net, target, learn, prioritized)
        support = net.mean.support.asnumpy()
        self.low, self.spacing = float(support[0]), float(support[1] - support[0])
        self.support = ms.Tensor(support[None])
        self.places = ms.Tensor(np.arange(len(support), dtype=np.float32))

    def backup(self, batch):
        probability = ops.Softmax(-1)(self.next_atoms(batch))
        return project(probability, (self.returns(batch, self.support) - self.low) / self.spacing, self.places)

    def errors(self, batch):
        logits = self.chosen(batch)
        # The relative entropy is the priority: rows that are predicted right have none, however uncertain they are.
        loss, priority = cross_entropy(logits, batch["target"])
        return loss, self.net.mean(ops.stop_gradient(logits)), priority


class C51(ActionValuePolicy):
    """Categorical DQN for Discrete actions."""

    name = "c51"

    def _network(self, rng: np.random.Generator) -> ReturnDistribution:
        model = self.cfg.model
        return ReturnDistribution(self.spec, model, SupportMean(model.v_min, model.v_max, model.n_atoms), rng)

    def _learner(self, net: ReturnDistribution, target: ReturnDistribution, prioritized: bool) -> C51Cell:
        return C51Cell(net, target, self.cfg.learn, prioritized)
