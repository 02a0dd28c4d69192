"""Steps along the natural gradient that stay within a trust region (compiled).

The natural gradient s solves ``(F + damping I) s = g``: g is the gradient of an objective L, and F the Hessian of the
mean divergence KL(old || new), which is the Fisher information of the policy (Kakade, 2001,
https://papers.nips.cc/paper/2073-a-natural-policy-gradient). The conjugate gradient method needs only products with F,
each of which is the gradient of a gradient (Schulman et al., 2015, https://arxiv.org/abs/1502.05477, appendix C).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.ops import primitives
from minding.policies.ops.primitives import after

SHRINK = 0.8
"""Factor between two lengths that the line search tries."""
OF_STEP = ("policy_loss", "kl", "step_share")
"""Metrics of a step: -L before it, the divergence by it, and the length taken as a share of x."""
TRIES = 10
"""Largest number of lengths that the line search tries."""
_RESIDUAL = 1e-10
"""The conjugate gradient method stops at this squared norm of the residual."""
_SMALLEST = 1e-20


class TrustRegionStep(nn.Cell):
    """One step of parameters, from the longest that the quadratic model of the divergence allows:

        x = sqrt(2 d / s^T (F + damping I) s) s

    With a line search, the step is the first of x, 0.8 x, 0.8^2 x, ... for which L grows and the divergence is at most
    d; if `TRIES` lengths fail, the parameters stay as they were.

    Args:
      evaluate: function ``(batch, obs) -> (L, parameters of the distribution)``.
      divergence: function ``(batch, old, new) -> mean KL(old || new)``, of parameters of the distribution.
    """

    def __init__(
        self,
        params: Sequence[ms.Parameter],
        evaluate: Callable[[Any, Any], Any],
        divergence: Callable[[Any, Any, Any], Any],
        *,
        limit: float,
        iterations: int,
        damping: float,
        line_search: bool,
    ) -> None:
        super().__init__()
        self.moved = ms.ParameterTuple(params)
        self.shapes = [tuple(p.shape) for p in params]
        self.stops = list(itertools.accumulate(math.prod(shape) for shape in self.shapes))
        self.starts = [0, *self.stops[:-1]]
        self.evaluate, self.divergence = evaluate, divergence
        self.limit, self.iterations, self.damping = float(limit), iterations, float(damping)
        self.tries = TRIES if line_search else 1
        self.searches = line_search
        self.slope = ms.value_and_grad(self.evaluate, None, self.moved, has_aux=True)
        self.divergence_slope = ms.grad(self.divergence_from_here, None, self.moved)
        self.product = ms.grad(self.slope_along, None, self.moved)
        self.none, self.one = ms.Tensor(np.float32(0.0)), ms.Tensor(np.float32(1.0))
        self.nothing = ms.Tensor(np.zeros(len(OF_STEP), np.float32))
        self.first = ms.Tensor(np.int32(0))

    def construct(self, batch):
        """Makes the step; returns (L before it, divergence by it, the length taken as a share of x or 0), scalars,
        which become available after the step."""
        obs = batch["obs"]
        (before, old), grads = self.slope(batch, obs)
        old = self.copied(old)
        step = self.longest(batch, self.joined(grads))
        origin = ops.stop_gradient(self.joined(self.moved))
        read = (before, step, origin, *old)
        share, length, moved_by, tried = self.none, self.one, self.none, self.first
        while tried < self.tries and share <= 0.0:
            done = self.write(after(origin, read) + length * step)
            reached, new = self.evaluate(batch, after(obs, done))
            moved_by = self.divergence(batch, old, new)
            if not self.searches or (reached > before and moved_by <= self.limit):
                share = length
            length = length * SHRINK
            tried = tried + 1
        if share <= 0.0:
            moved_by = after(self.none, self.write(after(origin, (share, moved_by))))
        return before, after(moved_by, share), share

    def once(self, batch, done):
        """Makes the step after `done`, if the batch is the first one of a call; returns `OF_STEP` as an array, zeros
        without a step."""
        found = self.nothing
        if "first" in batch:
            if after(batch["first"], done) > 0.0:
                found = self.made(batch, done)
        else:
            found = self.made(batch, done)
        return found

    def made(self, batch, done):
        """Makes the step after `done`; returns `OF_STEP` as an array."""
        batch["obs"] = after(batch["obs"], done)
        gain, moved_by, share = self.construct(batch)
        return primitives.stacked((-gain, moved_by, share))

    def longest(self, batch, grad):
        """x, float32 (n,): the longest step along the natural gradient."""
        found, residual, direction = ops.ZerosLike()(grad), grad, grad
        square, i = ops.ReduceSum()(grad * grad), self.first
        while i < self.iterations and square > _RESIDUAL:
            curved = self.curved(batch, direction)
            rate = square / ops.ReduceSum()(direction * curved)
            found = found + rate * direction
            residual = residual - rate * curved
            smaller = ops.ReduceSum()(residual * residual)
            direction = residual + (smaller / square) * direction
            square = smaller
            i = i + 1
        quadratic = ops.ReduceSum()(found * self.curved(batch, found))
        return ops.Sqrt()(2.0 * self.limit / ops.Maximum()(quadratic, _SMALLEST)) * found

    def curved(self, batch, direction):
        """The product ``(F + damping I) v``, float32 (n,)."""
        return self.joined(self.product(batch, direction)) + self.damping * direction

    def slope_along(self, batch, direction):
        """The derivative of the divergence along a direction, a scalar."""
        slopes = self.divergence_slope(batch)
        total = self.none
        for k in range(len(self.shapes)):
            part = primitives.part(direction, self.starts[k], self.stops[k] - self.starts[k])
            total = total + ops.ReduceSum()(ops.Reshape()(slopes[k], (-1,)) * part)
        return total

    def divergence_from_here(self, batch):
        """The divergence from the present distribution, whose value and gradient are 0 and whose Hessian is F."""
        _, new = self.evaluate(batch, batch["obs"])
        return self.divergence(batch, ops.stop_gradient(new), new)

    def copied(self, values):
        """Copies, because a value may be one of the parameters themselves, which the step changes."""
        copies: Any = ()
        for k in range(len(values)):
            copies = (*copies, ops.deepcopy(ops.stop_gradient(primitives.item(values, k))))
        return copies

    def joined(self, values):
        """Arrays of the parameters' shapes as one array ``(n,)``."""
        flat: Any = ()
        for k in range(len(self.shapes)):
            flat = (*flat, ops.Reshape()(primitives.item(values, k), (-1,)))
        return ops.Concat()(flat)

    def write(self, values):
        """Writes an array ``(n,)`` into the parameters; returns what waits for it."""
        done: Any = ()
        for k in range(len(self.shapes)):
            part = primitives.part(values, self.starts[k], self.stops[k] - self.starts[k])
            done = (*done, ops.assign(self.moved[k], ops.Reshape()(part, self.shapes[k])))
        return done
