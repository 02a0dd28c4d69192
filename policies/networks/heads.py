"""Action heads: a distribution over actions, with its compiled maths (`log_prob_entropy`) beside its NumPy sampling.

Each head maps features ``(B, F)`` to a tuple of distribution parameters; drawing an action happens in NumPy from a
Generator that can be saved, log-probabilities and entropies of the update are compiled. A test holds both equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minding.engine.errors import SpaceError
from minding.engine.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.networks.layers import Linear
from minding.policies.ops import distributions

Params = tuple[Array, ...]


class CategoricalHead(nn.Cell):
    """One of n actions; parameters: logits ``(B, n)``, actions int64 ``(B,)``."""

    def __init__(self, features: int, n: int, gain: float | None, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = Linear(features, n, gain, rng)

    def construct(self, x):
        return (self.linear(x),)

    def log_prob_entropy(self, params, action):
        return distributions.categorical_log_prob_entropy(params[0], action)

    def host(self) -> Callable[[Array], Params]:
        linear = self.linear.host()
        return lambda x: (linear(x),)

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws actions; returns (action, log-probability float32 ``(B,)``)."""
        return distributions.sample_categorical(params[0], rng)

    def mode(self, params: Params) -> Array:
        return params[0].argmax(axis=-1)


class MultiCategoricalHead(nn.Cell):
    """K independent choices; parameters: joined logits ``(B, sum nvec)``, actions int64 ``(B, K)``."""

    def __init__(self, features: int, nvec: list[int], gain: float | None, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = Linear(features, sum(nvec), gain, rng)
        self.stops = [int(s) for s in np.cumsum(nvec)]
        self.starts = [0, *self.stops[:-1]]

    def construct(self, x):
        return (self.linear(x),)

    def log_prob_entropy(self, params, action):
        log_prob, entropy = 0.0, 0.0
        for k in range(len(self.starts)):
            logits = params[0][:, self.starts[k] : self.stops[k]]
            part, part_entropy = distributions.categorical_log_prob_entropy(logits, action[:, k])
            log_prob, entropy = log_prob + part, entropy + part_entropy
        return log_prob, entropy

    def host(self) -> Callable[[Array], Params]:
        linear = self.linear.host()
        return lambda x: (linear(x),)

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        parts = [
            distributions.sample_categorical(params[0][:, a:b], rng) for a, b in zip(self.starts, self.stops)
        ]
        return np.stack([p[0] for p in parts], axis=-1), np.sum([p[1] for p in parts], axis=0, dtype=np.float32)

    def mode(self, params: Params) -> Array:
        return np.stack([params[0][:, a:b].argmax(axis=-1) for a, b in zip(self.starts, self.stops)], axis=-1)


class GaussianHead(nn.Cell):
    """Diagonal normal with a state-independent deviation; parameters: mean ``(B, A)``, log deviation ``(A,)``."""

    def __init__(
        self, features: int, size: int, gain: float | None, rng: np.random.Generator, log_std: float = 0.0
    ) -> None:
        super().__init__()
        self.linear = Linear(features, size, gain, rng)
        self.log_std = ms.Parameter(ms.Tensor(np.full(size, log_std, np.float32)), name="log_std")

    def construct(self, x):
        return self.linear(x), self.log_std

    def log_prob_entropy(self, params, action):
        return distributions.gaussian_log_prob_entropy(params[0], params[1], action.reshape(params[0].shape))

    def host(self) -> Callable[[Array], Params]:
        linear, log_std = self.linear.host(), self.log_std.asnumpy()
        return lambda x: (linear(x), log_std)

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        return distributions.sample_gaussian(params[0], params[1], rng)

    def mode(self, params: Params) -> Array:
        return params[0]


class SquashedGaussianHead(nn.Cell):
    """tanh of a normal whose deviation depends on the state (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905,
    appendix C); parameters: mean and log deviation, each ``(B, A)``; actions in (-1, 1)."""

    LOG_STD_RANGE = (-20.0, 2.0)

    def __init__(self, features: int, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.mean = Linear(features, size, None, rng)
        self.log_std = Linear(features, size, None, rng)

    def construct(self, x):
        return self.mean(x), ops.clamp(self.log_std(x), self.LOG_STD_RANGE[0], self.LOG_STD_RANGE[1])

    def host(self) -> Callable[[Array], Params]:
        mean, log_std, limits = self.mean.host(), self.log_std.host(), self.LOG_STD_RANGE
        return lambda x: (mean(x), np.clip(log_std(x), *limits))

    def sample(self, params: Params, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal(params[0].shape, dtype=np.float32)
        return np.tanh(params[0] + np.exp(params[1]) * noise)

    def mode(self, params: Params) -> Array:
        return np.tanh(params[0])


def make_action_head(
    space: Mapping[str, Any],
    features: int,
    rng: np.random.Generator,
    *,
    gain: float | None = 0.01,
    log_std: float = 0.0,
) -> nn.Cell:
    """The head that fits an action space description: discrete, multi_discrete or box.

    Raises:
      SpaceError: for any other kind.
    """
    kind = space["kind"]
    if kind == "discrete":
        return CategoricalHead(features, space["n"], gain, rng)
    if kind == "multi_discrete":
        return MultiCategoricalHead(features, list(space["nvec"]), gain, rng)
    if kind == "box":
        return GaussianHead(features, math.prod(space["shape"]), gain, rng, log_std)
    raise SpaceError(f"no action head for a space of kind {kind!r}: use Discrete, MultiDiscrete or Box actions")
