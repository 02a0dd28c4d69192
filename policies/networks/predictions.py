"""Predictions of a world model from its states: observations, rewards, whether the episode continues, and values.

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import Leaf, observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_imagination as numpy_forms
from minding.policies.networks.encoder import OneHot
from minding.policies.networks.layers import MLP, Linear, ScalarLinear
from minding.policies.networks.recurrent import GRU
from minding.policies.networks.world_model import Latents, hidden_layers, is_vector
from minding.policies.ops import lean
from minding.policies.ops.symlog import symexp, symlog, two_hot

_OF_BYTES = 1.0 / 255.0


class TwoHotNumber(nn.Cell):
    """A number of any size as a distribution over equally spaced bins of its `symlog`: hidden layers and logits (B, N)
    from features (B, F). The last layer starts at 0, so that all bins are equally likely."""

    def __init__(self, features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.torso = MLP.of(features, model, None, rng)
        self.logits = Linear(self.torso.out_features, model.bins, 0.0, rng)
        self.low, self.spacing = -model.bin_limit, 2.0 * model.bin_limit / (model.bins - 1)
        self.places = ms.Tensor(np.arange(model.bins, dtype=np.float32))
        bins = np.linspace(-model.bin_limit, model.bin_limit, model.bins, dtype=np.float32)
        self.bins = ms.Tensor(bins.reshape(-1, 1))

    def construct(self, x):
        return self.logits(self.torso(x))

    def number(self, logits):
        """The number that the logits encode: float32 (B,)."""
        return symexp(ops.Squeeze(-1)(ops.MatMul()(ops.Softmax(-1)(logits), self.bins)))

    def target(self, number):
        """The distribution that encodes a number: (B,) -> (B, N)."""
        return two_hot(symlog(number), self.low, self.spacing, self.places)

    def loss(self, logits, target):
        """Cross-entropy with the distribution `target`, float32 (B,)."""
        return -ops.ReduceSum()(ops.stop_gradient(target) * ops.LogSoftmax(-1)(logits), -1)

    def host(self) -> numpy_forms.TwoHotNumber:
        return numpy_forms.TwoHotNumber(self.torso.host(), self.logits.host(), self.bins.asnumpy()[:, 0])


class Continuation(nn.Cell):
    """Logits (B,) of the probability that the episode continues after states (B, F)."""

    def __init__(self, features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.torso = MLP.of(features, model, None, rng)
        self.logit = ScalarLinear(self.torso.out_features, None, rng)

    def construct(self, x):
        return self.logit(self.torso(x))

    def loss(self, logit, going):
        """Binary cross-entropy, float32 (B,)."""
        return ops.Softplus()(logit) - going * logit

    def host(self) -> numpy_forms.Continuation:
        return numpy_forms.Continuation(self.torso.host(), self.logit.host())


class _Vector(nn.Cell):
    """Numbers as their `symlog`, (B, n)."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.out_features = math.prod(leaf.field.shape)

    def construct(self, x):
        return symlog(ops.Cast()(ops.Reshape()(x, (-1, self.out_features)), ms.float32))


class _Image(nn.Cell):
    """Pixels in [0, 1], (B, n)."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.out_features = math.prod(leaf.field.shape)

    def construct(self, x):
        return ops.Cast()(ops.Reshape()(x, (-1, self.out_features)), ms.float32) * _OF_BYTES


class Decoder(nn.Cell):
    """Predicts the observation from states (B, F): hidden layers and a linear layer give one row of numbers for all
    leaves.

    A vector is predicted as its `symlog`, an image as pixels in [0, 1], and choices as logits. The loss of a row is the
    sum of the squared errors of numbers and pixels and of the cross-entropies of choices.
    """

    def __init__(self, spec: Mapping[str, Any], features: int, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        leaves = observation_leaves(spec["observation"])
        self.targets = nn.CellList([_target(leaf) for leaf in leaves])
        # Number of classes of each choice in each leaf; empty for numbers.
        self.choices = tuple(tuple(getattr(target, "sizes", ())) for target in self.targets)
        self.sizes = tuple(target.out_features for target in self.targets)
        self.leaves = tuple(
            numpy_forms.PredictedLeaf(tuple(leaf.field.shape), 1.0 / _OF_BYTES if leaf.is_image else None, choices)
            for leaf, choices in zip(leaves, self.choices)
        )
        self.torso = MLP.of(features, model, None, rng)
        self.linear = Linear(self.torso.out_features, sum(self.sizes), 1.0, rng)

    def construct(self, x):
        return self.linear(self.torso(x))

    def loss(self, predicted, leaves):
        """The loss, float32 (B,), of a prediction (B, n) of the leaves of an observation, (B, ...) each."""
        total = 0.0
        start = 0
        for k in range(len(self.sizes)):
            target = self.targets[k](lean.item(leaves, k))
            made = predicted[:, start : start + self.sizes[k]]
            start = start + self.sizes[k]
            if len(self.choices[k]) == 0:
                total = total + ops.ReduceSum()(ops.Square()(made - target), -1)
            else:
                total = total + _cross_entropies(made, target, self.choices[k])
        return total

    def host(self) -> numpy_forms.Decoder:
        return numpy_forms.Decoder(self.torso.host(), self.linear.host(), self.leaves)


class Predictions(nn.Cell):
    """All predictions of a world model: the next latents from h alone; the observation, the reward and the continuation
    of the episode from states.

    Args:
      spec: description of the environment's spaces.
      model: the configuration `policy.model`.
      rng: random generator for the initial weights.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.latents = Latents(model)
        self.prior_torso = hidden_layers(model.deter, model.hidden[-1:], model, rng)
        self.prior_logits = Linear(self.prior_torso.out_features, self.latents.size, 1.0, rng)
        features = model.deter + self.latents.size
        self.observation = Decoder(spec, features, model, rng)
        self.reward = TwoHotNumber(features, model, rng)
        self.continuation = Continuation(features, model, rng)

    def prior(self, h):
        """Probabilities (B S, C) of the latents, predicted from h (B, D)."""
        return self.latents.probability(self.prior_logits(self.prior_torso(h)))

    def imagination(self, mix: MLP, memory: GRU) -> numpy_forms.Imagination:
        """The imagination in NumPy, with the transition of the acting network."""
        prior = (self.prior_torso.host(), self.prior_logits.host(), self.latents.host())
        predicted = (self.observation.host(), self.reward.host(), self.continuation.host())
        return numpy_forms.Imagination((mix.host(), memory.host()), prior, predicted)


def _target(leaf: Leaf) -> nn.Cell:
    if leaf.is_image:
        return _Image(leaf)
    return _Vector(leaf) if is_vector(leaf) else OneHot(leaf.space)


def _cross_entropies(logits, target, sizes):
    """The sum of the cross-entropies of joined choices with these sizes, float32 (B,), from logits and one-hots, each
    (B, n)."""
    total = 0.0
    start = 0
    for size in sizes:
        log_p = ops.LogSoftmax(-1)(logits[:, start : start + size])
        total = total - ops.ReduceSum()(target[:, start : start + size] * log_p, -1)
        start = start + size
    return total
