"""Networks with batch renormalization: actor and critics of CrossQ.

While a network learns, a batch is normalized by its own mean and variance (batch normalization: Ioffe and Szegedy,
2015, https://arxiv.org/abs/1502.03167), or, with renormalization, as if by their moving averages (Ioffe, 2017,
https://arxiv.org/abs/1702.03275). While it acts, or judges an action, the moving averages normalize.

Learning returns the moments of the batch. Whoever updates the weights then moves the averages by `move`.
"""

from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import compositions
from minding.policies.networks.actor_critic import ActionValue, CriticEnsemble, SquashedActor
from minding.policies.networks.layers import MLP, Composed
from minding.policies.ops.primitives import after

EPSILON, SHARE = 1e-3, 0.01
"""Number that is added to variances, and weight of a batch in the moving averages."""
R_MAX, D_MAX = 3.0, 5.0
"""Bounds of the corrections."""


class BatchRenorm(Composed, compositions.BatchRenorm):
    """Normalizes each column of x ``(B, size)``, with a learned weight and bias, which start at 1 and 0.

        y = ((x - mean_B) / std_B * r + d) * weight + bias             (learning)
        r = clip(std_B / std, 1 / r_max, r_max),   d = clip((mean_B - mean) / std, -d_max, d_max)
        y = (x - mean) / std * weight + bias                           (else)

    mean and std^2 - 1e-3 are moving averages of the means and the biased variances of batches; they start at 0 and 1.
    No gradient flows through r and d (Ioffe, 2017, algorithm 1). Without renormalization r is 1 and d is 0.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.epsilon = EPSILON
        self.weight = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="bias")
        self.mean = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="mean", requires_grad=False)
        self.variance = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="variance", requires_grad=False)

    def learn(self, x, renorm):
        """The result for a batch, and its mean and variance, (size,) each.

        Args:
          x: float32 (B, size).
          renorm: a scalar, 1 with renormalization, else 0.
        """
        mean = ops.ReduceMean()(x, 0)
        x = x - mean
        variance = ops.ReduceMean()(x * x, 0)
        std, usual = ops.Sqrt()(variance + EPSILON), ops.Sqrt()(self.variance + EPSILON)
        most, shift = 1.0 + (R_MAX - 1.0) * renorm, D_MAX * renorm
        r = ops.stop_gradient(ops.Minimum()(ops.Maximum()(std / usual, 1.0 / most), most))
        d = ops.stop_gradient(ops.Minimum()(ops.Maximum()((mean - self.mean) / usual, -shift), shift))
        return (x / std * r + d) * self.weight + self.bias, (ops.stop_gradient(mean), ops.stop_gradient(variance))

    def move(self, moments, done):
        """Moves the averages towards the moments of a batch, after `done`; returns a result that comes after it."""
        mean, variance = moments
        step_of_mean = SHARE * (mean - after(self.mean, done))
        step_of_variance = SHARE * (variance - after(self.variance, done))
        return ops.AssignAdd()(self.mean, step_of_mean), ops.AssignAdd()(self.variance, step_of_variance)


class RenormedMLP(MLP, compositions.RenormedMLP):
    """An `MLP` with a `BatchRenorm` of its input and after each activation."""

    def __init__(self, in_features: int, *args: Any) -> None:
        super().__init__(in_features, *args)
        sizes = [in_features, *(layer.bias.shape[0] for layer in self.layers)]
        self.renorms = nn.CellList([BatchRenorm(size) for size in sizes])

    def into(self, head, x, seed=None):
        return head(self.construct(x))

    def learn(self, x, renorm):
        """The features of a batch, and the moments of each normalization; for the arguments see `BatchRenorm`."""
        x, first = self.renorms[0].learn(x, renorm)
        moments: Any = (first,)
        for k in range(len(self.layers)):
            x, found = self.renorms[k + 1].learn(self.activated(x, k), renorm)
            moments = (*moments, found)
        return x, moments

    def move(self, moments, done):
        """`BatchRenorm.move` of all normalizations."""
        moved: Any = ()
        for k in range(len(self.renorms)):
            moved = (*moved, *self.renorms[k].move(moments[k], done))
        return moved


class RenormedActor(SquashedActor):
    """A `SquashedActor` with batch renormalization."""

    torso_class = RenormedMLP

    def learn(self, obs, renorm):
        """The outputs for a batch, and its moments; for `renorm` see `BatchRenorm`."""
        features, moments = self.torso.learn(self.encoder(obs), renorm)
        return self.head(features), moments

    def move(self, moments, done):
        """`BatchRenorm.move` of all normalizations."""
        return self.torso.move(moments, done)


class RenormedValue(ActionValue):
    """An `ActionValue` with batch renormalization."""

    torso_class = RenormedMLP

    def learn(self, action, obs, renorm):
        """Q(s, a) of a batch, float32 (B,), and its moments; for `renorm` see `BatchRenorm`."""
        features, moments = self.torso.learn(ops.Concat(-1)((self.encoder(obs), action)), renorm)
        return self.value(features), moments


class RenormedEnsemble(CriticEnsemble):
    """A `CriticEnsemble` of `RenormedValue`."""

    def learn(self, action, obs, renorm):
        """Values (N, B) of a batch, and its moments; for the arguments see `RenormedValue`."""
        values: Any = ()
        moments: Any = ()
        for member in self.members:
            value, found = member.learn(action, obs, renorm)
            values, moments = (*values, value), (*moments, found)
        return ops.Stack()(values), moments

    def move(self, moments, done):
        """`BatchRenorm.move` of all normalizations."""
        moved: Any = ()
        for k in range(len(self.members)):
            moved = (*moved, *self.members[k].torso.move(moments[k], done))
        return moved
