"""A state value whose head learns in units of the returns' standard deviation."""

from __future__ import annotations

import numpy as np

from minding.engine.process.runtime import assign, ms, nn
from minding.engine.types import Array
from minding.policies.acting import numpy_central as numpy_forms
from minding.policies.networks.layers import ScalarLinear

_SMALLEST_DEVIATION = 1e-2


class PopArt(nn.Cell):
    """A linear value head with the moments of the returns (van Hasselt et al., 2016, https://arxiv.org/abs/1602.07714,
    section 2): v = (w^T x + b) sigma + mu.

    The moments are weighted means over the updates; each update has `decay` times the weight of the next one. Before
    the first update, mu is 0 and sigma 1.

    Args:
      in_features: size of x.
      rng: random generator for the initial weights.
    """

    def __init__(self, in_features: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.linear = ScalarLinear(in_features, 1.0, rng)
        self.mean, self.deviation = _number("mean", 0.0), _number("deviation", 1.0)
        self.variance, self.updates = _number("variance", 1.0), _number("updates", 0.0)

    def construct(self, x):
        """The normalized value, float32 (B,), for x (B, in)."""
        return self.linear(x)

    def raw(self, value):
        """Converts normalized values to units of the returns."""
        return value * self.deviation + self.mean

    def normalized(self, value):
        """The inverse of `raw`."""
        return (value - self.mean) / self.deviation

    def update(self, returns: Array, decay: float) -> None:
        """Adds returns to the moments, before they are learned from.

        The values in units of the returns stay the same, because the head's weights are rescaled to the new moments.
        Only the first update leaves the weights unchanged, so that a head that has learned nothing starts at the mean.

        Args:
          returns: target values, ``(B,)`` with B > 0.
          decay: weight of an update relative to the next one, in [0, 1).
        """
        mean, variance, deviation, updates = (
            float(p.asnumpy()[0]) for p in (self.mean, self.variance, self.deviation, self.updates)
        )
        # This share gives the moments from before the first update no weight.
        share = (1.0 - decay) / (1.0 - decay ** (updates + 1.0))
        seen, spread = float(returns.mean(dtype=np.float64)), float(returns.var(dtype=np.float64))
        new_mean = mean + share * (seen - mean)
        new_variance = (1.0 - share) * (variance + share * (seen - mean) ** 2) + share * spread
        new_deviation = max(np.sqrt(new_variance), _SMALLEST_DEVIATION)
        if updates:
            weight, bias = self.linear.weight, self.linear.bias
            assign(weight, (weight.asnumpy() * (deviation / new_deviation)).astype(np.float32))
            assign(bias, ((bias.asnumpy() * deviation + (mean - new_mean)) / new_deviation).astype(np.float32))
        moments = (self.mean, new_mean), (self.variance, new_variance), (self.deviation, new_deviation)
        for parameter, number in (*moments, (self.updates, updates + 1.0)):
            assign(parameter, np.full(1, number, np.float32))

    def host(self) -> numpy_forms.PopArt:
        return numpy_forms.PopArt(self.linear.host(), self.mean.asnumpy(), self.deviation.asnumpy())


def _number(name: str, start: float) -> ms.Parameter:
    return ms.Parameter(ms.Tensor(np.full(1, start, np.float32)), name=name, requires_grad=False)
