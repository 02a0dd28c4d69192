"""Networks of implicit quantiles: the quantile function of the return, at any fractions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_layers as numpy_forms
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.layers import MLP, Linear
from minding.policies.networks.masks import action_mask
from minding.policies.ops.order import after
from minding.policies.ops.quantiles import midpoints


class ImplicitQuantiles(nn.Cell):
    """Quantiles of each action's return (Dabney et al., 2018, https://arxiv.org/abs/1806.06923, eq. 4):

        Z_tau(s, a) = f(psi(s) * phi(tau))_a,   phi_j(tau) = ReLU( sum_{i<n} cos(pi i tau) w_ij + b_j )

    psi is encoder and hidden layers; f is a linear layer, with `dueling` V + A - mean A. The value of an action is the
    mean over the fixed fractions tau_k = (2 k + 1) / (2 K). Because f is linear, this is f(psi(s) * mean_k phi(tau_k)),
    which takes one row instead of K. Values of actions that the observation's mask forbids are `ILLEGAL`.

    Args:
      spec: description of the environment's spaces.
      model: the configuration `policy.model`.
      rng: random generator for the initial weights.
    """

    shared_outputs = ()
    memory_size = 0
    noise_size = 0
    decision = Decision(0, "q_values")

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        actions, count = spec["action"]["n"], model.n_cosines
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = MLP.of(self.encoder.out_features, model, None, rng)
        features = self.torso.out_features
        self.embedding = MLP(count, [features], "relu", None, rng)
        self.advantage = Linear(features, actions, None, rng)
        self.value = Linear(features, 1, None, rng) if model.dueling else None
        self.mask = action_mask(spec["observation"])
        self.count, self.features, self.actions = count, features, actions
        frequencies = np.pi * np.arange(count)
        self.frequencies = ms.Tensor(frequencies.astype(np.float32))
        # The cosines of the fixed fractions, which are inputs of the embedding.
        self.cosines = ms.Tensor(np.cos(frequencies * midpoints(model.n_fractions)[:, None]).astype(np.float32))

    def construct(self, obs):
        # No input of the embedding depends on the observation; without `after`, its weights could be read too early.
        mean = ops.ReduceMean(True)(self.embedding(after(self.cosines, obs)), 0)
        values = self.outputs(self.torso(self.encoder(obs)) * mean)
        return (values if self.mask is None else self.mask(values, obs),)

    def quantiles(self, obs, fractions):
        """Quantiles of each action's return, float32 (B, A, N), at fractions (B, N)."""
        rows, number = fractions.shape
        cosines = ops.Cos()(ops.ExpandDims()(fractions, -1) * self.frequencies)
        embedded = self.embedding(ops.Reshape()(cosines, (rows * number, self.count)))
        seen = ops.ExpandDims()(self.torso(self.encoder(obs)), 1)
        features = seen * ops.Reshape()(embedded, (rows, number, self.features))
        quantiles = self.outputs(ops.Reshape()(features, (rows * number, self.features)))
        return ops.Transpose()(ops.Reshape()(quantiles, (rows, number, self.actions)), (0, 2, 1))

    def outputs(self, features):
        """The function f of the class's formula: float32 (B, F) -> (B, A)."""
        outputs = self.advantage(features)
        if self.value is not None:
            outputs = self.value(features) + outputs - ops.ReduceMean(True)(outputs, -1)
        return outputs

    def host(self) -> numpy_forms.ImplicitQuantiles:
        value = self.value.host() if self.value is not None else None
        mask = self.mask.host() if self.mask is not None else None
        parts = (self.encoder.host(), self.torso.host(), self.advantage.host(), value)
        return numpy_forms.ImplicitQuantiles(parts, self.embedding.host(), self.cosines.asnumpy(), mask)
