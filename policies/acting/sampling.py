"""Distributions to draw actions from, in NumPy. `ops.distributions` has the compiled versions.

Each takes the parameters that a network outputs, and draws from a Generator that can be saved. All of them can be
pickled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from minding.engine.types import Array

Params = tuple[Array, ...]
_LOG_2PI = math.log(2.0 * math.pi)


class Distribution(Protocol):
    """Draws actions and gives their log-probabilities."""

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws actions; returns (action, log-probability float32 ``(B,)``)."""
        ...

    def mode(self, params: Params) -> Array:
        """The most likely action."""
        ...

    def log_prob(self, params: Params, action: Array) -> Array:
        """Log-probability float32 ``(B,)`` of given actions."""
        ...


class Categorical:
    """One of n actions; parameters: logits ``(B, n)``, actions int64 ``(B,)``."""

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws by inverting the cumulative distribution."""
        # One row per action: NumPy combines whole rows at once, but the few entries of a short row one by one.
        logits = np.ascontiguousarray(params[0].T)
        exp = np.exp(logits - np.maximum.reduce(logits, axis=0))
        cumulative = np.add.accumulate(exp, axis=0)
        total = cumulative[-1]
        threshold = rng.random(len(total), dtype=np.float32) * total
        # The last entry is left out: the draw is below 1, but its product with the total may round up to the total.
        action = np.add.reduce(cumulative[:-1] <= threshold, axis=0)
        return action, np.log(exp[action, np.arange(len(total))] / total)

    def mode(self, params: Params) -> Array:
        return params[0].argmax(axis=-1)

    def log_prob(self, params: Params, action: Array) -> Array:
        shifted = params[0] - params[0].max(axis=-1, keepdims=True)
        return shifted[np.arange(len(action)), action] - np.log(np.exp(shifted).sum(axis=-1))


class MultiCategorical:
    """K independent choices; parameters: joined logits ``(B, sum nvec)``, actions int64 ``(B, K)``."""

    def __init__(self, nvec: Sequence[int]) -> None:
        stops = [int(s) for s in np.cumsum(nvec)]
        self.parts = [slice(a, b) for a, b in zip([0, *stops], stops)]
        self.choice = Categorical()

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        drawn = [self.choice.sample((params[0][:, part],), rng) for part in self.parts]
        return np.stack([d[0] for d in drawn], axis=-1), np.sum([d[1] for d in drawn], axis=0, dtype=np.float32)

    def mode(self, params: Params) -> Array:
        return np.stack([params[0][:, part].argmax(axis=-1) for part in self.parts], axis=-1)

    def log_prob(self, params: Params, action: Array) -> Array:
        parts = [self.choice.log_prob((params[0][:, part],), action[:, k]) for k, part in enumerate(self.parts)]
        return np.sum(parts, axis=0, dtype=np.float32)


class DiagonalGaussian:
    """Independent normals; parameters: mean ``(B, A)`` and log standard deviation ``(A,)``; actions ``(B, A)``."""

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        mean, log_std = params
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        log_prob = -0.5 * np.square(noise).sum(axis=-1) - log_std.sum() - np.float32(0.5 * _LOG_2PI * log_std.size)
        return mean + np.exp(log_std) * noise, log_prob

    def mode(self, params: Params) -> Array:
        return params[0]

    def log_prob(self, params: Params, action: Array) -> Array:
        mean, log_std = params
        noise = (action.reshape(mean.shape) - mean) * np.exp(-log_std)
        return -0.5 * np.square(noise).sum(axis=-1) - log_std.sum() - np.float32(0.5 * _LOG_2PI * log_std.size)


class SquashedGaussian:
    """tanh of independent normals; parameters: mean and log standard deviation, each ``(B, A)``; actions in (-1, 1).

    Off-policy learning draws fresh actions, so the log-probability of past actions is not needed.
    """

    def sample(self, params: Params, rng: np.random.Generator) -> Array:
        """Draws actions, float32 ``(B, A)``."""
        noise = rng.standard_normal(params[0].shape, dtype=np.float32)
        return np.tanh(params[0] + np.exp(params[1]) * noise)

    def mode(self, params: Params) -> Array:
        return np.tanh(params[0])


class BoundedNormal:
    """Independent normals whose draws are clipped to [-1, 1]; parameters: mean and standard deviation, each ``(B, A)``.

    Log-probabilities belong to the normals before clipping.
    """

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws actions, float32 ``(B, A)``, with the log-probability of the draw before it is clipped."""
        mean, deviation = params
        action = mean + deviation * rng.standard_normal(mean.shape, dtype=np.float32)
        return np.clip(action, -1.0, 1.0), self.log_prob(params, action)

    def mode(self, params: Params) -> Array:
        return params[0]

    def log_prob(self, params: Params, action: Array) -> Array:
        mean, deviation = params
        each = -0.5 * np.square((action - mean) / deviation) - np.log(deviation) - np.float32(0.5 * _LOG_2PI)
        return each.sum(axis=-1)
