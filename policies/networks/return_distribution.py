"""Networks of return distributions: N atoms for each action, whose mean is the action's value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_layers as numpy_forms
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.layers import MLP, Linear
from minding.policies.networks.masks import action_mask
from minding.policies.networks.noisy import NoisyLinear, NoisyMLP, place_noise


class QuantileMean(nn.Cell):
    """The mean of N quantiles: (B, A, N) -> (B, A).

    Args:
      count: number of quantiles, N.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def construct(self, atoms):
        return ops.ReduceMean()(atoms, -1)

    def host(self) -> numpy_forms.QuantileMean:
        return numpy_forms.QuantileMean()


class SupportMean(nn.Cell):
    """The mean of categorical distributions over a support: logits (B, A, N) -> (B, A).

    Args:
      low, high: lowest and highest value of the support.
      count: number of equally spaced values, N.

    Attributes:
      support: the values, float32 (N,).
      low, spacing: the lowest value and the spacing of the values, not rounded to float32.
    """

    def __init__(self, low: float, high: float, count: int) -> None:
        super().__init__()
        self.count = count
        self.low, self.spacing = float(low), (high - low) / (count - 1)
        self.support = ms.Tensor(np.linspace(low, high, count, dtype=np.float32))

    def construct(self, atoms):
        return ops.ReduceSum()(ops.Softmax(-1)(atoms) * self.support, -1)

    def host(self) -> numpy_forms.SupportMean:
        return numpy_forms.SupportMean(self.support.asnumpy())


class ReturnDistribution(nn.Cell):
    """Action values (B, A) as means of N atoms each; with `dueling` every atom is V + A - mean A (Hessel et al., 2018,
    https://arxiv.org/abs/1710.02298, section on Rainbow). Values of actions that the observation's mask forbids are
    `ILLEGAL`.

    Args:
      spec: description of the environment's spaces.
      model: the configuration `policy.model`.
      mean: cell from the atoms to the values, such as `QuantileMean`; its `count` is the number of atoms.
      rng: random generator for the initial weights.
    """

    shared_outputs = ()
    memory_size = 0
    noise_size = 0
    decision = Decision(0, "q_values")

    def __init__(self, spec: Mapping[str, Any], model: Any, mean: nn.Cell, rng: np.random.Generator) -> None:
        super().__init__()
        self.shape = (-1, spec["action"]["n"], mean.count)
        self.encoder = make_encoder(spec["observation"], model, rng)
        self.torso = self._torso(self.encoder.out_features, model, rng)
        features = self.torso.out_features
        self.advantage = self._linear(features, spec["action"]["n"] * mean.count, model, rng)
        self.value = self._linear(features, mean.count, model, rng) if model.dueling else None
        self.mean = mean
        self.mask = action_mask(spec["observation"])

    def _torso(self, features: int, model: Any, rng: np.random.Generator) -> nn.Cell:
        return MLP.of(features, model, None, rng)

    def _linear(self, features: int, count: int, model: Any, rng: np.random.Generator) -> nn.Cell:
        return Linear(features, count, None, rng)

    def construct(self, obs):
        return (self.action_values(obs),)

    def action_values(self, obs, noise=None):
        """Action values, float32 (B, A); for `noise` see `atoms`."""
        return self.values(self.atoms(obs, noise), obs)

    def atoms(self, obs, noise=None):
        """Distribution of each action's return, float32 (B, A, N): quantiles or logits.

        Args:
          obs: leaves of the observations.
          noise: noise of noisy layers, see `networks.noisy`; None for layers without noise, or to use the means.
        """
        advantage, value = self.streams(obs, noise)
        atoms = ops.Reshape()(advantage, self.shape)
        if value is not None:
            atoms = ops.ExpandDims()(value, 1) + atoms - ops.ReduceMean(True)(atoms, 1)
        return atoms

    def streams(self, obs, noise):
        """Advantages, float32 (B, A N), and with `dueling` values (B, N), else None; for `noise` see `atoms`."""
        features = self.torso(self.encoder(obs))
        return self.advantage(features), None if self.value is None else self.value(features)

    def values(self, atoms, obs):
        """Action values (B, A) of these atoms."""
        values = self.mean(atoms)
        return values if self.mask is None else self.mask(values, obs)

    def host(self) -> numpy_forms.ReturnDistribution:
        return numpy_forms.ReturnDistribution(*self._host_parts())

    def _host_parts(self) -> tuple[Any, ...]:
        value = self.value.host() if self.value is not None else None
        mask = self.mask.host() if self.mask is not None else None
        parts = (self.encoder.host(), self.torso.host(), self.advantage.host(), value)
        return parts, self.shape, self.mean.host(), mask


class NoisyReturnDistribution(ReturnDistribution):
    """A `ReturnDistribution` with noise on all weights after the encoder (see `networks.noisy`), whose initial size is
    ``model.noisy_sigma``. In acting, the noise is a leaf after the leaves of the observation.

    Attributes:
      noise_size: number of values in the noise.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, mean: nn.Cell, rng: np.random.Generator) -> None:
        super().__init__(spec, model, mean, rng)
        self.noise_size = place_noise(self)
        self.num_leaves = len(observation_leaves(spec["observation"]))

    def _torso(self, features: int, model: Any, rng: np.random.Generator) -> nn.Cell:
        return NoisyMLP(features, model.hidden, model.activation, model.noisy_sigma, rng, model.norm)

    def _linear(self, features: int, count: int, model: Any, rng: np.random.Generator) -> nn.Cell:
        return NoisyLinear(features, count, model.noisy_sigma, rng)

    def construct(self, obs):
        if len(obs) > self.num_leaves:
            return (self.action_values(obs[: self.num_leaves], obs[-1]),)
        return (self.action_values(obs),)

    def streams(self, obs, noise):
        features = self.torso(self.encoder(obs), noise)
        return self.advantage(features, noise), None if self.value is None else self.value(features, noise)

    def host(self) -> numpy_forms.NoisyReturnDistribution:
        return numpy_forms.NoisyReturnDistribution(self.num_leaves, *self._host_parts())
