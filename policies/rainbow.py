"""Rainbow: six extensions of DQN in one agent, each of which can be turned off.

Hessel et al., 2018, https://arxiv.org/abs/1710.02298; double, dueling and prioritized replay as in DQN; noisy networks:
Fortunato et al., 2018, https://arxiv.org/abs/1706.10295; the return distribution as in C51.

    m = project( R + gamma^k (1 - terminated) z, p_target(s', a*; e') ),   z_i = v_min + i (v_max - v_min) / (N - 1)
    a* = argmax_a sum_i z_i p_i(s', a; e'')                   (double; else of p_target with e')
    L = mean[ -w sum_i m_i log p_i(s, a; e) ],   priority KL(m || p)
                                        (not distributional: y, L and priority of DQN)
    y_i = (mu x + mu)_i + f_i (sigma (g x) + sigma)_i         (noisy layer; e = (g, f) drawn for each step; else f = 0)
"""

from __future__ import annotations

import numpy as np

from minding.engine.data.batch import IndexedBatch
from minding.engine.process.runtime import ops
from minding.engine.types import Array
from minding.policies.acting.sampling import weight_noise
from minding.policies.families.q_learning import CLIPPED, ActionValuePolicy, CategoricalQLearning, QLearning
from minding.policies.networks.return_distribution import (
    NoisyReturnDistribution,
    QuantileMean,
    ReturnDistribution,
    SupportMean,
)
from minding.policies.ops import primitives
from minding.policies.ops.distributional import cross_entropy
from minding.policies.ops.values import chosen_atoms, chosen_value, value_loss

NOISE, NEXT_NOISE, CHOICE_NOISE = "noise", "next_noise", "choice_noise"
"""Names of the inputs e, e' and e''."""


def noise_of(batch, name):
    """The noise (1, S) of this name, the same for all rows; None without noisy layers."""
    return batch.get(name)


class RainbowCell(CategoricalQLearning):
    """Root cell: see `CategoricalQLearning`."""

    def td_target(self, batch):
        """m, float32 (B, N), and the probability beyond the support, float32 (B,)."""
        atoms = self.target.atoms(batch["next_obs"], noise_of(batch, NEXT_NOISE))
        if self.double:
            values = self.net.action_values(batch["next_obs"], noise_of(batch, CHOICE_NOISE))
        else:
            values = self.target.values(atoms, batch["next_obs"])
        probability = ops.Softmax(-1)(chosen_atoms(atoms, ops.Argmax(-1)(values)))
        return self.projected(batch, probability)

    def loss(self, batch):
        target, clipped = self.td_target(batch)
        logits = chosen_atoms(self.net.atoms(batch["obs"], noise_of(batch, NOISE)), batch["action"])
        loss, priority = cross_entropy(logits, target)
        loss, metrics = self.averaged(batch, loss, self.net.mean(ops.stop_gradient(logits)), priority)
        metrics[CLIPPED] = primitives.mean(clipped)
        return loss, metrics


class ExpectedRainbowCell(QLearning):
    """Root cell without the return distribution: each action has one atom, its value."""

    def td_target(self, batch):
        """y, float32 (B,)."""
        next_q = self.target.action_values(batch["next_obs"], noise_of(batch, NEXT_NOISE))
        if self.double:
            choosing = self.net.action_values(batch["next_obs"], noise_of(batch, CHOICE_NOISE))
            next_value = chosen_value(next_q, ops.Argmax(-1)(choosing))
        else:
            next_value = primitives.largest(next_q)
        return batch["reward"] + batch["discount"] * (1.0 - batch["terminated"]) * next_value

    def loss(self, batch):
        q = self.net.action_values(batch["obs"], noise_of(batch, NOISE))
        loss, value, error = value_loss(q, batch["action"], self.td_target(batch))
        return self.averaged(batch, loss, value, error)


class Rainbow(ActionValuePolicy):
    """Rainbow for Discrete actions."""

    name = "rainbow"

    def make_network(self, rng: np.random.Generator) -> ReturnDistribution:
        model = self.cfg.model
        # With a single quantile, which is the value itself, this is the network of DQN.
        mean = SupportMean(model.v_min, model.v_max, model.n_atoms) if model.distributional else QuantileMean(1)
        kind = NoisyReturnDistribution if model.noisy else ReturnDistribution
        return kind(self.spec, model, mean, rng)

    def make_learner(self, net: ReturnDistribution, target: ReturnDistribution, prioritized: bool) -> QLearning:
        kind = RainbowCell if self.cfg.model.distributional else ExpectedRainbowCell
        return kind(net, target, self.cfg.learn, prioritized)

    def draw(self, batch: IndexedBatch) -> dict[str, Array]:
        """The noise of noisy layers, ``(K, 1, S)`` each; it is the same for all rows of a gradient step."""
        if not self.net.noise_size:
            return {}
        names = (NOISE, NEXT_NOISE, CHOICE_NOISE) if self.cfg.learn.double else (NOISE, NEXT_NOISE)
        noise = weight_noise((len(names), len(batch.index), 1, self.net.noise_size), self.learn_rng)
        return dict(zip(names, noise))
