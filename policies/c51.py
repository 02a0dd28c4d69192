"""C51: the distribution of the return as probabilities of N fixed atoms.

Bellemare et al., 2017, https://arxiv.org/abs/1707.06887, algorithm 1; double, dueling and prioritized replay as in DQN,
its priorities as in Hessel et al., 2018, https://arxiv.org/abs/1710.02298.

    m = project( R + gamma^k (1 - terminated) z, p_target(s', a*) ),   z_i = v_min + i (v_max - v_min) / (N - 1)
    a* = argmax_a sum_i z_i p_i(s', a)                       (double; else of p_target)
    L = mean[ -w sum_i m_i log p_i(s, a) ],   p = softmax(logits)
                                                             (w: importance weights of prioritized replay, else 1)
"""

from __future__ import annotations

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.families.q_learning import CLIPPED, ActionValuePolicy, CategoricalQLearning
from minding.policies.networks.return_distribution import ReturnDistribution, SupportMean
from minding.policies.ops import primitives
from minding.policies.ops.distributional import cross_entropy
from minding.policies.ops.values import chosen_atoms


class C51Cell(CategoricalQLearning):
    """Root cell: see `CategoricalQLearning`."""

    def td_target(self, batch):
        """m, float32 (B, N), and the probability beyond the support, float32 (B,)."""
        atoms = self.target.atoms(batch["next_obs"])
        if self.double:
            values = self.net(batch["next_obs"])[0]
        else:
            values = self.target.values(atoms, batch["next_obs"])
        probability = ops.Softmax(-1)(chosen_atoms(atoms, ops.Argmax(-1)(values)))
        return self.projected(batch, probability)

    def loss(self, batch):
        target, clipped = self.td_target(batch)
        logits = chosen_atoms(self.net.atoms(batch["obs"]), batch["action"])
        # The relative entropy is the priority: it is 0 for correct predictions, however uncertain their returns are.
        loss, priority = cross_entropy(logits, target)
        loss, metrics = self.averaged(batch, loss, self.net.mean(ops.stop_gradient(logits)), priority)
        metrics[CLIPPED] = primitives.mean(clipped)
        return loss, metrics


class C51(ActionValuePolicy):
    """Categorical DQN for Discrete actions."""

    name = "c51"

    def make_network(self, rng: np.random.Generator) -> ReturnDistribution:
        model = self.cfg.model
        return ReturnDistribution(self.spec, model, SupportMean(model.v_min, model.v_max, model.n_atoms), rng)

    def make_learner(self, net: ReturnDistribution, target: ReturnDistribution, prioritized: bool) -> C51Cell:
        return C51Cell(net, target, self.cfg.learn, prioritized)
