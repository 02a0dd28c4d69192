"""Networks of return distributions: atoms for each action, or the quantile function at any fractions; and noisy layers.

Noisy layers have noise of a learned size on their weights: exploration without random actions. A network of such
layers takes the noise of all layers, float32 ``(1, S)`` for the whole batch or ``(B, S)`` with separate noise for each
row, see `acting.sampling.weight_noise`. Without noise, the network uses the means of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_layers, numpy_networks
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Cells, Linear, host_of
from minding.policies.ops.distributional import midpoints
from minding.policies.ops.primitives import after


class NoisyLinear(nn.Cell):
    """Linear layer with factorised Gaussian noise (Fortunato et al., 2018, https://arxiv.org/abs/1706.10295, eq. 9 to
    11), with noise e for the layer's inputs and f for its outputs, both transformed as in eq. 10 and 11:

        y_i = sum_j (mu_ij + sigma_ij f_i e_j) x_j + mu_i + sigma_i f_i
            = (mu x + mu)_i + f_i (sigma (e x) + sigma)_i

    The second form computes no noisy weights, so every row can have its own noise. mu is initially uniform in
    +-1/sqrt(in), and sigma is sigma_0/sqrt(in) (section 3.2).

    Args:
      in_features, out_features: sizes of input and output.
      sigma: the initial size of the noise, sigma_0.

    Attributes:
      start: index of the layer's first number in the noise, see `place_noise`.
    """

    def __init__(self, in_features: int, out_features: int, sigma: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.mean = Linear(in_features, out_features, None, rng)
        self.deviation = Linear(in_features, out_features, None, rng)
        for parameter in self.deviation.get_parameters():
            parameter.asnumpy()[...] = sigma / math.sqrt(in_features)
        self.in_features, self.noise_size = in_features, in_features + out_features
        self.start = 0

    def construct(self, x, noise=None):
        """y ``(B, out)`` for x ``(B, in)`` and the noise of the whole network; None: y for the means of the weights."""
        mean = self.mean(x)
        if noise is None:
            return mean
        middle = self.start + self.in_features
        inputs, outputs = noise[:, self.start : middle], noise[:, middle : self.start + self.noise_size]
        return mean + outputs * self.deviation(x * inputs)

    def host(self) -> numpy_layers.NoisyLinear:
        return numpy_layers.NoisyLinear(self.mean.host(), self.deviation.host(), self.start)


class NoisyMLP(MLP):
    """An `MLP` of `NoisyLinear` layers, where `gain` is their sigma."""

    layer_class = NoisyLinear

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fusible = False

    def construct(self, x, noise=None):
        for k in range(len(self.layers)):
            x = self.layers[k](x, noise)
            if len(self.norms) > 0:
                x = self.norms[k](x)
            x = self.activation(x)
        return x

    def host(self) -> numpy_layers.NoisyMLP:
        return numpy_layers.NoisyMLP(host_of(*self.layers), self.activation_name, host_of(*self.norms))


def place_noise(net: nn.Cell) -> int:
    """Gives each noisy layer of a network its place in the noise; returns S, the total size of the noise."""
    size = 0
    for _, cell in net.cells_and_names():
        if isinstance(cell, NoisyLinear):
            cell.start = size
            size += cell.noise_size
    return size


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

    def host(self) -> numpy_networks.QuantileMean:
        return numpy_networks.QuantileMean()


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

    def host(self) -> numpy_networks.SupportMean:
        return numpy_networks.SupportMean(self.support.asnumpy())


class ReturnDistribution(nn.Cell):
    """Action values (B, A) as means of N atoms each; with `dueling` every atom is V + A - mean A (Hessel et al., 2018,
    https://arxiv.org/abs/1710.02298, section on Rainbow). Values of actions that the observation's mask forbids are
    `ILLEGAL`.

    Args:
      mean: cell from the atoms to the values, such as `QuantileMean`; its `count` is the number of atoms.
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
          noise: noise of noisy layers, see `NoisyLinear`; None for layers without noise, or to use the means.
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

    def host(self) -> numpy_networks.ReturnDistribution:
        return numpy_networks.ReturnDistribution(*self._host_parts())

    def _host_parts(self) -> tuple[Any, ...]:
        parts = (self.encoder, self.torso, self.advantage, self.value, self.mean, self.mask)
        return self.shape, *host_of(*parts)


class NoisyReturnDistribution(ReturnDistribution):
    """A `ReturnDistribution` with noise on all weights after the encoder (see `NoisyLinear`), whose initial size is
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

    def host(self) -> numpy_networks.NoisyReturnDistribution:
        return numpy_networks.NoisyReturnDistribution(self.num_leaves, *self._host_parts())


class ImplicitQuantiles(nn.Cell):
    """Quantiles of each action's return (Dabney et al., 2018, https://arxiv.org/abs/1806.06923, eq. 4):

        Z_tau(s, a) = f(psi(s) * phi(tau))_a,   phi_j(tau) = ReLU( sum_{i<n} cos(pi i tau) w_ij + b_j )

    psi is encoder and hidden layers; f is a linear layer, with `dueling` V + A - mean A. The value of an action is the
    mean over the fixed fractions tau_k = (2 k + 1) / (2 K). Because f is linear, this is f(psi(s) * mean_k phi(tau_k)),
    which takes one row instead of K. Values of actions that the observation's mask forbids are `ILLEGAL`.
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
        return self.quantiles_of(self.torso(self.encoder(obs)), fractions)

    def quantiles_of(self, features, fractions):
        """`quantiles` for the features psi(s), float32 (B, F)."""
        rows, number = fractions.shape
        features = ops.ExpandDims()(features, 1) * self.embedded(fractions)
        quantiles = self.outputs(ops.Reshape()(features, (rows * number, self.features)))
        return ops.Transpose()(ops.Reshape()(quantiles, (rows, number, self.actions)), (0, 2, 1))

    def values_at(self, features, shares, fractions, obs):
        """Action values, float32 (B, A): means of quantiles at fractions (B, N), weighted by shares (B, N), for the
        features psi(s), float32 (B, F)."""
        mean = ops.ReduceSum()(self.embedded(fractions) * ops.ExpandDims()(shares, -1), 1)
        values = self.outputs(features * mean)
        return values if self.mask is None else self.mask(values, obs)

    def embedded(self, fractions):
        """phi, float32 (B, N, F), of fractions (B, N)."""
        rows, number = fractions.shape
        cosines = ops.Cos()(ops.ExpandDims()(fractions, -1) * self.frequencies)
        embedded = self.embedding(ops.Reshape()(cosines, (rows * number, self.count)))
        return ops.Reshape()(embedded, (rows, number, self.features))

    def outputs(self, features):
        """The function f of the class's formula: float32 (B, F) -> (B, A)."""
        outputs = self.advantage(features)
        if self.value is not None:
            outputs = self.value(features) + outputs - ops.ReduceMean(True)(outputs, -1)
        return outputs

    def host(self) -> numpy_networks.ImplicitQuantiles:
        parts = (self.encoder, self.torso, self.advantage, self.value, self.embedding, self.mask)
        return numpy_networks.ImplicitQuantiles(self.cosines.asnumpy(), *host_of(*parts))


class ProposedQuantiles(ImplicitQuantiles):
    """`ImplicitQuantiles` at fractions that a layer proposes (Yang et al., 2019, https://arxiv.org/abs/1911.02140,
    section 3.1).

        q = softmax(W psi(s) + b),   tau_i = q_1 + ... + q_i,   tau^_i = (tau_{i-1} + tau_i) / 2,   i <= N
        Q(s, a) = sum_i q_i Z_{tau^_i}(s, a)

    No gradient of the proposal reaches psi.
    """

    def __init__(self, spec: Mapping[str, Any], model: Any, rng: np.random.Generator) -> None:
        super().__init__(spec, model, rng)
        count = model.n_fractions
        # The shares are nearly equal at the start.
        self.proposal = Linear(self.features, count, 0.01, rng)
        self.softmax = ops.Softmax(-1)
        self.until = ms.Tensor(np.triu(np.ones((count, count), np.float32)))

    @property
    def quantile_function(self) -> Cells:
        """The parameters of all layers but the proposal, in the order of `ImplicitQuantiles`."""
        return Cells(self.encoder, self.torso, self.embedding, self.advantage, self.value)

    def proposed(self, features):
        """q, tau and tau^, float32 (B, N) each, for the features psi(s), float32 (B, F)."""
        shares = self.softmax(self.proposal(ops.stop_gradient(features)))
        ends = ops.MatMul()(shares, self.until)
        return shares, ends, ends - 0.5 * shares

    def construct(self, obs):
        features = self.torso(self.encoder(obs))
        shares, _, middles = self.proposed(features)
        return (self.values_at(features, shares, middles, obs),)

    def host(self) -> numpy_networks.ProposedQuantiles:
        parts = (self.proposal, self.encoder, self.torso, self.advantage, self.value, self.embedding, self.mask)
        return numpy_networks.ProposedQuantiles(self.frequencies.asnumpy(), *host_of(*parts))
