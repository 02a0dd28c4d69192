"""Categorical latents: S choices of C classes each, as rows (B S, C) (compiled).

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, section "World model learning".
"""

from __future__ import annotations

from minding.engine.process.runtime import ms, ops
from minding.policies.ops import lean


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
      choices: number of choices, S.
    """
    each = ops.ReduceSum()(p * (ops.Log()(p) - ops.Log()(q)), -1)
    return ops.ReduceSum()(ops.Reshape()(each, (-1, choices)), -1)


def balanced(posterior, prior, choices, free):
    """The losses that train the prior towards the posterior and, separately, the posterior towards the prior.

        L_dyn = max(f, KL(sg(q) || p)),   L_rep = max(f, KL(q || sg(p)))

    Args:
      posterior, prior: probabilities q and p, shaped as in `divergence`.
      choices: number of choices, S.
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
    return lean.mean(entropy(ops.stop_gradient(probability), choices))
