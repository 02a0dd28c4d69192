"""Maths of world models and of learning in their imagination (compiled).

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, eq. 1 and the sections "World model learning",
"Actor critic learning" and "Critic learning". Categorical latents are S choices of C classes each, as rows (B S, C).
"""

import math
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, ops
from minding.policies.ops import primitives


def symlog(x):
    """sign(x) log(1 + |x|), float32 of any shape."""
    # Uses only operators that can be exported. NaN stays NaN, which ReLU alone would hide.
    above = ops.ReLU()(x)
    return ops.Log()(1.0 + above) - ops.Log()(1.0 + (above - x))


def symexp(x):
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return ops.Sign()(x) * (ops.Exp()(ops.Abs()(x)) - 1.0)


def two_hot(x, low, spacing, places):
    """Distributions over equally spaced bins with given means: all probability is on the two nearest bins.

    Args:
      x: the means, float32 (B,); a number beyond the bins counts as the nearest bin.
      low, spacing: the first bin, and the distance between neighboring bins.
      places: float32 (N,), the numbers 0, ..., N - 1.
    Returns:
      float32 (B, N); NaN in rows whose number is not finite.
    """
    last = places.shape[0] - 1.0
    position = (x - low) / spacing
    within = ops.ExpandDims()(ops.clamp(position, 0.0, last), -1)
    # The clamp hides NaN and infinity; the last term is NaN for them, and otherwise 0.
    return ops.ReLU()(1.0 - ops.Abs()(within - places)) + ops.ExpandDims()(position - position, -1)


def mixed(logits, uniform):
    """Probabilities mixed with a uniform share u, so that no class is ever impossible: float32 (R, C).

    p = (1 - u) softmax(logits) + u / C
    """
    return (1.0 - uniform) * ops.Softmax(-1)(logits) + uniform / logits.shape[-1]


def drawn(probability, number, before, table):
    """Draws a class for each row, as one-hot, by inverting the cumulative distribution. Gradients flow as if the
    probabilities had been returned (straight through, Bengio et al., 2013, https://arxiv.org/abs/1308.3432).

    Args:
      probability: float32 (R, C).
      number: float32 (R,), uniform in [0, 1).
      before: float32 (C, C), 1 where the row's class comes before the column's.
      table: float32 (C, C), the classes as one-hot.
    """
    reached = ops.MatMul()(probability, before) <= ops.ExpandDims()(number, -1)
    # The first class is always reached, because the probability before it is 0.
    place = ops.Maximum()(ops.ReduceSum()(ops.Cast()(reached, ms.float32), -1) - 1.0, 0.0)
    return straight_through(probability, ops.Gather()(table, ops.Cast()(place, ms.int32), 0))


def likeliest(probability, table):
    """The likeliest class of each row, as one-hot: float32 (R, C)."""
    return ops.Gather()(table, ops.Argmax(-1)(probability), 0)


def straight_through(probability, hot):
    """The one-hot `hot`, with the gradient of the probabilities."""
    return probability + ops.stop_gradient(hot - probability)


def divergence(p, q, choices):
    """KL(p || q) of whole latents, summed over their choices: float32 (B,), at least 0 apart from rounding.

    Args:
      p, q: float32 (B S, C), probabilities, none of them 0.
    """
    each = ops.ReduceSum()(p * (ops.Log()(p) - ops.Log()(q)), -1)
    return ops.ReduceSum()(ops.Reshape()(each, (-1, choices)), -1)


def balanced(posterior, prior, choices, free):
    """The losses that train the prior towards the posterior and, separately, the posterior towards the prior.

        L_dyn = max(f, KL(sg(q) || p)),   L_rep = max(f, KL(q || sg(p)))

    Args:
      free: f, divergence in nats below which nothing is trained.

    Returns:
      (L_dyn, L_rep, the divergence without gradient), float32 (B,) each.
    """
    still = ops.stop_gradient(posterior)
    to_prior = divergence(still, prior, choices)
    to_posterior = divergence(posterior, ops.stop_gradient(prior), choices)
    return ops.Maximum()(to_prior, free), ops.Maximum()(to_posterior, free), ops.stop_gradient(to_prior)


def entropy(probability, choices):
    """Entropy of whole latents in nats: float32 (B,)."""
    each = -ops.ReduceSum()(probability * ops.Log()(probability), -1)
    return ops.ReduceSum()(ops.Reshape()(each, (-1, choices)), -1)


def mean_entropy(probability, choices):
    """The mean of `entropy` without gradient, for use as a metric."""
    return primitives.mean(entropy(ops.stop_gradient(probability), choices))


def lambda_returns(reward, decay, value, lam):
    """Returns of up to H steps from every state of a trajectory, as lambda-weighted means over the number of steps:

        R_t = r_{t+1} + d_{t+1} ((1 - lambda) v_{t+1} + lambda R_{t+1}),   R_H = v_H

    Args:
      reward: float32 (H, N), rewards r of the steps that lead to the states 1 to H.
      decay: float32 (H, N), d of these states: gamma times the probability that the episode continues after them.
      value: float32 (H, N), v of these states.
      lam: lambda, a Python number.
    Returns:
      Returns of the states 0 to H - 1, float32 (H, N). Gradients flow through all arguments.
    """
    steps = reward.shape[0]
    ahead = primitives.part(value, steps - 1, 1)
    made: Any = ()
    for k in range(steps):
        t = steps - 1 - k
        mixed = (1.0 - lam) * primitives.part(value, t, 1) + lam * ahead
        ahead = primitives.part(reward, t, 1) + primitives.part(decay, t, 1) * mixed
        made = (ahead, *made)
    return made[0] if steps == 1 else ops.Concat(0)(made)


def reach_weights(going, decay):
    """The weight of each state: the discounted probability that the trajectory reaches it.

        w_0 = c_0,   w_t = w_{t-1} d_t

    Args:
      going: float32 (N,), c_0: 0 if the episode ended in the state from which imagination starts, else 1.
      decay: float32 (H, N), d of the states 1 to H.
    Returns:
      Weights of the states 0 to H - 1, float32 (H, N).
    """
    weight = ops.ExpandDims()(going, 0)
    made: Any = (weight,)
    for t in range(decay.shape[0] - 1):
        weight = weight * primitives.part(decay, t, 1)
        made = (*made, weight)
    return made[0] if decay.shape[0] == 1 else ops.Concat(0)(made)


def percentiles(x, shares):
    """Percentiles of all entries of x (B,), interpolated linearly as in NumPy: float32 (P,).

    Args:
      x: float32 (B,).
    """
    ordered, last = ops.Sort()(x)[0], x.shape[0] - 1
    made: Any = ()
    for share in shares:
        low = math.floor(share * last)
        rest = share * last - low
        below, above = primitives.part(ordered, low, 1), primitives.part(ordered, min(low + 1, last), 1)
        made = (*made, below + rest * (above - below))
    return ops.Concat(0)(made)


def running_range(before, low_high, decay):
    """Updates the running sums of two percentiles and of their weights: float32 (3,) before and after.

    Each update has `decay` times the weight of the next one. The running means are the first two numbers divided by the
    third, so that they are not biased towards 0 after the first updates; see `width`.

    Args:
      before: float32 (3,), the sums before the update.
      low_high: float32 (2,), the two percentiles.
    """
    both = ops.Concat(0)((low_high, ops.OnesLike()(primitives.part(low_high, 0, 1))))
    return decay * before + (1.0 - decay) * both


def width(running, floor):
    """The distance between the two running means of `running_range`, at least `floor`: float32 (1,)."""
    low, high, count = (primitives.part(running, k, 1) for k in range(3))
    return ops.Maximum()((high - low) / count, floor)


NO_RANGE = np.zeros(3, np.float32)
"""The sums of `running_range` before the first update."""
