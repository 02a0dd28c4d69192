"""Linear layers with noise of a learned size on their weights: exploration without random actions.

A network of such layers takes the noise of all layers, float32 ``(1, S)`` for the whole batch or ``(B, S)`` with
separate noise for each row, see `acting.noise.weight_noise`. Without noise, the network uses the means of its weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from minding.engine.process.runtime import nn
from minding.policies.acting import numpy_layers as numpy_forms
from minding.policies.networks.activations import ACTIVATIONS, Tanh
from minding.policies.networks.layers import Linear, make_norms


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
      rng: random generator for the initial means.

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

    def host(self) -> numpy_forms.NoisyLinear:
        return numpy_forms.NoisyLinear(self.mean.host(), self.deviation.host(), self.start)


class NoisyMLP(nn.Cell):
    """Noisy linear layers with an activation after each and, with `norm` 'layer', a `LayerNorm` before each activation.

    Args:
      in_features: size of the input.
      hidden: sizes of the layers; an empty sequence gives the identity.
      activation: name of the activation, one of `activations.ACTIVATIONS`.
      sigma: the initial size of the noise, see `NoisyLinear`.
      rng: random generator for the initial means.
      norm: 'none' or 'layer'.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        activation: str,
        sigma: float,
        rng: np.random.Generator,
        norm: str = "none",
    ) -> None:
        super().__init__()
        sizes = [in_features, *hidden]
        self.out_features = sizes[-1]
        self.layers = nn.CellList([NoisyLinear(a, b, sigma, rng) for a, b in itertools.pairwise(sizes)])
        self.norms = make_norms(hidden, norm)
        self.activation_name = activation
        # tanh is computed with the sigmoid, because MindSpore's tanh on CPU is wrong by up to 1e-4.
        self.activation = Tanh() if activation == "tanh" else ACTIVATIONS[activation]()

    def construct(self, x, noise=None):
        for k in range(len(self.layers)):
            x = self.layers[k](x, noise)
            if len(self.norms) > 0:
                x = self.norms[k](x)
            x = self.activation(x)
        return x

    def host(self) -> numpy_forms.NoisyMLP:
        layers, norms = ([cell.host() for cell in cells] for cells in (self.layers, self.norms))
        return numpy_forms.NoisyMLP(layers, self.activation_name, norms)


def place_noise(net: nn.Cell) -> int:
    """Gives each noisy layer of a network its place in the noise; returns S, the total size of the noise."""
    size = 0
    for _, cell in net.cells_and_names():
        if isinstance(cell, NoisyLinear):
            cell.start = size
            size += cell.noise_size
    return size
