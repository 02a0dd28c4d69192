"""Random draws of acting, in NumPy: distributions of actions, and noise on actions and on weights.

Each distribution takes the parameters that a network outputs, and draws from a Generator that can be saved. All of them
can be pickled. `ops.distributions` has the compiled versions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array, StateDict
from minding.policies.acting.memory import Memory

Params = tuple[Array, ...]
_LOG_2PI = math.log(2.0 * math.pi)


class Distribution:
    """Base of distributions. A subclass defines `sample`, or at least `draw`, and `mode`."""

    def draw(self, params: Params, rng: np.random.Generator) -> Array:
        return self.sample(params, rng)[0]

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws actions; returns (action, log-probability float32 ``(B,)``)."""
        raise NotImplementedError

    def mode(self, params: Params) -> Array:
        raise NotImplementedError

    def log_prob(self, params: Params, action: Array) -> Array:
        """Log-probability float32 ``(B,)`` of given actions."""
        raise NotImplementedError


class Categorical(Distribution):
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


class MultiCategorical(Distribution):
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


class DiagonalGaussian(Distribution):
    """Independent normals; parameters: mean ``(B, A)`` and log standard deviation ``(A,)`` or ``(B, A)``; actions
    ``(B, A)``."""

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        mean, log_std = params
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        return mean + np.exp(log_std) * noise, self._of_noise(noise, log_std)

    def mode(self, params: Params) -> Array:
        return params[0]

    def log_prob(self, params: Params, action: Array) -> Array:
        mean, log_std = params
        noise = (action.reshape(mean.shape) - mean) * np.exp(-log_std)
        return self._of_noise(noise, log_std)

    def _of_noise(self, noise: Array, log_std: Array) -> Array:
        constant = np.float32(0.5 * _LOG_2PI * log_std.shape[-1])
        log_prob: Array = -0.5 * np.square(noise).sum(axis=-1) - log_std.sum(axis=-1) - constant
        return log_prob


class Composite(Distribution):
    """Independent choices and normals; parameters: joined logits ``(B, sum nvec)``, mean ``(B, A)`` and log standard
    deviation ``(A,)``; actions float32 ``(B, K + A)``, the choices first."""

    def __init__(self, nvec: Sequence[int]) -> None:
        self.choices, self.numbers, self.count = MultiCategorical(nvec), DiagonalGaussian(), len(nvec)

    def sample(self, params: Params, rng: np.random.Generator) -> tuple[Array, Array]:
        chosen, of_choices = self.choices.sample(params[:1], rng)
        drawn, of_numbers = self.numbers.sample(params[1:], rng)
        return self._rows(chosen, drawn), of_choices + of_numbers

    def mode(self, params: Params) -> Array:
        return self._rows(self.choices.mode(params[:1]), self.numbers.mode(params[1:]))

    def log_prob(self, params: Params, action: Array) -> Array:
        chosen = action[:, : self.count].astype(np.int64)
        of_numbers: Array = self.numbers.log_prob(params[1:], action[:, self.count :])
        return self.choices.log_prob(params[:1], chosen) + of_numbers

    def _rows(self, chosen: Array, drawn: Array) -> Array:
        return np.concatenate([chosen, drawn], axis=1, dtype=np.float32)


class SquashedGaussian(Distribution):
    """tanh of independent normals; parameters: mean and log standard deviation, each ``(B, A)``; actions in (-1, 1).

    Off-policy learning draws fresh actions, so the log-probability of past actions is not needed.
    """

    def draw(self, params: Params, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal(params[0].shape, dtype=np.float32)
        return np.tanh(params[0] + np.exp(params[1]) * noise)

    def mode(self, params: Params) -> Array:
        return np.tanh(params[0])


class BoundedNormal(Distribution):
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


NoiseDraw = Callable[[tuple[int, ...], np.random.Generator], Array]
"""Draws random numbers of a shape for a network, float32."""


class GaussianNoise:
    """Independent normal numbers with standard deviation `sigma`, without memory between steps."""

    def __init__(self, sigma: float) -> None:
        self.sigma = np.float32(sigma)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """The noise of the next step, float32 ``(N, A)``, one row per environment."""
        return self.sigma * rng.standard_normal(shape, dtype=np.float32)

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Restarts the noise in these environments, or in all."""

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        pass


class OUNoise:
    """Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein, 1930; Lillicrap et al., 2016,
    https://arxiv.org/abs/1509.02971, section 3), 0 at the start of an episode:

        x_{t+1} = (1 - theta) x_t + sigma e_t,   e_t ~ N(0, 1)

    In the long run the variance of x is ``sigma^2 / (1 - (1 - theta)^2)``, and values k steps apart have the
    correlation ``(1 - theta)^k``.
    """

    def __init__(self, sigma: float, theta: float, size: int, owner: str) -> None:
        self.sigma, self.kept = np.float32(sigma), np.float32(1.0 - theta)
        self._memory = Memory(size, owner)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """The noise of the next step, float32 ``(N, A)``, one row per environment."""
        noise: Array = self.sigma * rng.standard_normal(shape, dtype=np.float32)
        noise += self.kept * self._memory.rows(shape[0])
        # A copy, because a reset writes into the memory.
        self._memory.write(noise.copy())
        return noise

    def reset(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Restarts the noise in these environments; None: in all, after which their number may change."""
        self._memory.forget(env_ids)

    def state_dict(self) -> StateDict:
        return self._memory.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        self._memory.load_state_dict(state)


ActionNoise = GaussianNoise | OUNoise


def make_noise(cfg: Mapping[str, Any], size: int, owner: str) -> ActionNoise:
    """The noise that `policy.collect.noise` configures, for actions of `size` numbers."""
    if cfg["kind"] == "ou":
        return OUNoise(cfg["sigma"], cfg["theta"], size, owner)
    return GaussianNoise(cfg["sigma"])


def weight_noise(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draws the numbers of noisy layers (Fortunato et al., 2018, https://arxiv.org/abs/1706.10295, eq. 10 and 11):
    sgn(x) sqrt(|x|) of standard normal x, float32."""
    normal = rng.standard_normal(shape, dtype=np.float32)
    noise: Array = np.copysign(np.sqrt(np.abs(normal)), normal)
    return noise


def uniform_noise(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draws uniform numbers in [0, 1), float32, with which a network samples from categorical distributions."""
    return rng.random(shape, dtype=np.float32)
