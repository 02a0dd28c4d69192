"""Noise for exploration, on continuous actions and on weights, in NumPy and without MindSpore."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array, StateDict
from minding.policies.acting.memory import Memory

NoiseDraw = Callable[[tuple[int, ...], np.random.Generator], Array]
"""Draws random numbers of a shape for a network, float32."""


class GaussianNoise:
    """Independent normal numbers with standard deviation `sigma`, without memory between steps.

    Args:
      sigma: standard deviation, in units of the policy's actions.
    """

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

    Args:
      sigma: standard deviation of the noise that each step adds, in units of the policy's actions.
      theta: share of the distance to 0 that each step removes, in (0, 1]; 1 gives independent Gaussian noise.
      size: number of values in an action.
      owner: name of the algorithm, for messages.
    """

    def __init__(self, sigma: float, theta: float, size: int, owner: str) -> None:
        self.sigma, self.kept = np.float32(sigma), np.float32(1.0 - theta)
        self._memory = Memory(size, owner)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """The noise of the next step, float32 ``(N, A)``, one row per environment.

        Raises:
          ShapeError: if N differs from the previous step.
        """
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
