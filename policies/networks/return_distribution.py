"""Networks of return distributions: atoms for each action, or the quantile function at any fractions; and noisy layers.

Noisy layers have noise of a learned size on their weights: exploration without random actions. A network of such
layers takes the noise of all layers, float32 ``(1, S)`` for the whole batch or ``(B, S)`` with separate noise for each
row, see `acting.sampling.weight_noise`. Without noise, the network uses the means of its weights.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions, numpy_networks
from minding.policies.networks.actor_critic import Decision
from minding.policies.networks.encoder import make_encoder
from minding.policies.networks.heads import action_mask
from minding.policies.networks.layers import MLP, Cells, Composed, Linear
from minding.policies.ops.distributional import midpoints


class NoisyLinear(Composed, compositions.NoisyLinear):
    """Linear layer with factorised Gaussian noise (Fortunato et al., 2018, https://arxiv.org/abs/1706.10295, eq. 9 to
    11), with noise e for the layer's inputs and f for its outputs, both transformed as in eq. 10 and 11:

        y_i = sum_j (mu_ij + sigma_ij f_i e_j) x_j + mu_i + sigma_i f_i
            = (mu x + mu)_i + f_i (sigma (e x) + sigma)_i

    The second form computes no noisy weights, so every row can have its own noise. mu is initially uniform in
    +-1/sqrt(in), and sigma is sigma_0/sqrt(in) (section 3.2).
    """

    def __init__(self, in_features: int, out_features: int, sigma: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.mean = Linear(in_features, out_features, None, rng)
        self.deviation = Linear(in_features, out_features, None, rng)
        for parameter in self.deviation.get_parameters():
            parameter.asnumpy()[...] = sigma / math.sqrt(in_features)
        self.in_features, self.noise_size = in_features, in_features + out_features
        self.start = 0


class NoisyMLP(MLP, compositions.NoisyMLP):
    """An `MLP` of `NoisyLinear` layers, where `gain` is their sigma."""

    layer_class = NoisyLinear

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fusible = False


def place_noise(net: nn.Cell) -> int:
    """Gives each noisy layer of a network its place in the noise; returns S, the total size of the noise."""
    size = 0
    for _, cell in net.cells_and_names():
        if isinstance(cell, NoisyLinear):
            cell.start = size
            size += cell.noise_size
    return size


class QuantileMean(Composed, compositions.QuantileMean):
    """The mean of N quantiles: (B, A, N) -> (B, A)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count


class SupportMean(nn.Cell):
    """The mean of categorical distributions over a support: logits (B, A, N) -> (B, A).

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


class ReturnDistribution(Composed, compositions.ReturnDistribution):
    """Action values (B, A) as means of N atoms each; with `dueling` every atom is V + A - mean A (Hessel et al., 2018,
    https://arxiv.org/abs/1710.02298, section on Rainbow). Values of actions that the observation's mask forbids are
    `ILLEGAL`."""

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


class NoisyReturnDistribution(ReturnDistribution, compositions.NoisyReturnDistribution):
    """A `ReturnDistribution` with noise on all weights after the encoder (see `NoisyLinear`), whose initial size is
    ``model.noisy_sigma``. In acting, the noise is a leaf after the leaves of the observation."""

    def __init__(self, spec: Mapping[str, Any], model: Any, mean: nn.Cell, rng: np.random.Generator) -> None:
        super().__init__(spec, model, mean, rng)
        self.noise_size = place_noise(self)
        self.num_leaves = len(observation_leaves(spec["observation"]))

    def _torso(self, features: int, model: Any, rng: np.random.Generator) -> nn.Cell:
        return NoisyMLP(features, model.hidden, model.activation, model.noisy_sigma, rng, model.norm)

    def _linear(self, features: int, count: int, model: Any, rng: np.random.Generator) -> nn.Cell:
        return NoisyLinear(features, count, model.noisy_sigma, rng)


class ImplicitQuantiles(Composed, compositions.ImplicitQuantiles):
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

    def quantiles(self, obs, fractions):
        """Quantiles of each action's return, float32 (B, A, N), at fractions (B, N)."""
        return self.quantiles_of(self.torso(self.encoder(obs)), fractions)

    def quantiles_of(self, features, fractions):
        """`quantiles` for the features psi(s), float32 (B, F)."""
        rows, number = fractions.shape
        features = ops.ExpandDims()(features, 1) * self.embedded(fractions)
        quantiles = self.outputs(ops.Reshape()(features, (rows * number, self.features)))
        return ops.Transpose()(ops.Reshape()(quantiles, (rows, number, self.actions)), (0, 2, 1))


class ProposedQuantiles(ImplicitQuantiles, compositions.ProposedQuantiles):
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
        self.until = ms.Tensor(np.triu(np.ones((count, count), np.float32)))

    @property
    def quantile_function(self) -> Cells:
        """The parameters of all layers but the proposal, in the order of `ImplicitQuantiles`."""
        return Cells(self.encoder, self.torso, self.embedding, self.advantage, self.value)
