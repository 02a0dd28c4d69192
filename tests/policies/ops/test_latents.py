"""Categorical latents against NumPy in float64: probabilities, draws, divergence, what trains which side."""

import numpy as np
import pytest
from numeric import assert_gradient, numeric_gradient, value

from minding.engine.process.runtime import ms, ops, to_device
from minding.policies.acting.numpy_world_model import Latents as HostLatents
from minding.policies.ops.imagination import balanced, divergence, drawn, entropy, likeliest, mixed

CHOICES, CLASSES, ROWS = 3, 4, 5
TABLE, BEFORE = np.eye(CLASSES, dtype=np.float32), np.triu(np.ones((CLASSES, CLASSES), np.float32), 1)


def np_mixed(logits, uniform):
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (1 - uniform) * exp / exp.sum(axis=-1, keepdims=True) + uniform / logits.shape[-1]


def np_divergence(p, q):
    return (p * (np.log(p) - np.log(q))).sum(axis=-1).reshape(-1, CHOICES).sum(axis=1)


def logits(seed):
    return np.random.default_rng(seed).normal(0.0, 2.0, (ROWS * CHOICES, CLASSES))


def device(x):
    return to_device(np.asarray(x, np.float32))


def test_a_share_of_the_probabilities_is_uniform():
    found = value(mixed(device(logits(0)), 0.01))
    np.testing.assert_allclose(found, np_mixed(logits(0), 0.01), rtol=1e-5)
    np.testing.assert_allclose(value(mixed(device([[90.0, 0.0]]), 0.1)), [[0.95, 0.05]], rtol=1e-6)


def test_draws_follow_the_distribution_and_the_numpy_form_draws_the_same():
    rows, p = 20_000, np.array([0.1, 0.55, 0.05, 0.3])
    number = np.random.default_rng(1).random(rows, dtype=np.float32)
    hot = value(drawn(device(np.tile(p, (rows, 1))), device(number), device(BEFORE), device(TABLE)))
    np.testing.assert_allclose(hot.mean(axis=0), p, atol=0.01)
    np.testing.assert_allclose(np.sort(hot, axis=1)[:, :-1], 0.0, atol=1e-6)
    # With no uniform share in it, since it is in p.
    host = HostLatents(1, CLASSES, 0.0)(np.log(np.tile(p, (rows, 1))).astype(np.float32), number[:, None])
    assert (host.argmax(axis=1) == hot.argmax(axis=1)).mean() > 0.999


def test_a_draw_at_either_end_is_a_class():
    p = np.full((2, CLASSES), 0.25)
    hot = value(
        drawn(device(p), device([0.0, np.nextafter(np.float32(1), np.float32(0))]), device(BEFORE), device(TABLE))
    )
    assert hot.argmax(axis=1).tolist() == [0, CLASSES - 1]
    assert value(likeliest(device([[0.2, 0.5, 0.2, 0.1]]), device(TABLE))).tolist() == [[0, 1, 0, 0]]


def test_gradients_flow_through_a_draw_as_through_the_probabilities():
    number, weight = device([0.3, 0.9]), device(np.arange(8.0).reshape(2, 4))

    def weighted(p):
        return ops.ReduceSum()(weight * drawn(p, number, device(BEFORE), device(TABLE)))

    gradient = ms.value_and_grad(weighted)(device(np.full((2, 4), 0.25)))[1]
    np.testing.assert_allclose(value(gradient), value(weight))


def test_the_divergence_and_the_entropy_of_whole_latents():
    p, q = np_mixed(logits(0), 0.01), np_mixed(logits(1), 0.01)
    np.testing.assert_allclose(value(divergence(device(p), device(q), CHOICES)), np_divergence(p, q), rtol=1e-5)
    np.testing.assert_allclose(value(divergence(device(p), device(p), CHOICES)), np.zeros(ROWS), atol=1e-6)
    even = np.full((ROWS * CHOICES, CLASSES), 0.25)
    np.testing.assert_allclose(value(entropy(device(even), CHOICES)), np.full(ROWS, CHOICES * np.log(4)), rtol=1e-6)


@pytest.mark.parametrize(("side", "free"), [(0, 0.0), (1, 0.0), (0, 4.7), (1, 4.7)])
def test_one_part_trains_the_prior_and_the_other_the_posterior_and_neither_below_the_free_nats(side, free):
    fixed, moving = np_mixed(logits(0), 0.01), logits(2)

    def reference(x):
        p, q = (fixed, np_mixed(x, 0.01)) if side == 0 else (np_mixed(x, 0.01), fixed)
        return np.maximum(np_divergence(p, q), free).sum()

    def compiled(x):
        moved, still = mixed(x, 0.01), device(fixed)
        posterior, prior = (still, moved) if side == 0 else (moved, still)
        return ops.ReduceSum()(balanced(posterior, prior, CHOICES, free)[side])

    # Some are above the free nats, some below.
    each = np_divergence(*((fixed, np_mixed(moving, 0.01)) if side == 0 else (np_mixed(moving, 0.01), fixed)))
    assert free == 0.0 or 0 < (each > free).sum() < ROWS
    assert_gradient(compiled, reference, moving)

    def other(x):
        moved, still = mixed(x, 0.01), device(fixed)
        posterior, prior = (still, moved) if side == 0 else (moved, still)
        return ops.ReduceSum()(balanced(posterior, prior, CHOICES, free)[1 - side])

    assert not value(ms.value_and_grad(other)(device(moving))[1]).any()


def test_the_metric_has_no_gradient():
    p = device(np_mixed(logits(0), 0.01))
    gradient = ms.value_and_grad(lambda x: ops.ReduceSum()(balanced(x, p, CHOICES, 1.0)[2]))
    assert not value(gradient(device(np_mixed(logits(1), 0.01)))[1]).any()
    assert numeric_gradient(
        lambda x: np_divergence(x, np_mixed(logits(0), 0.01)).sum(), np_mixed(logits(1), 0.01)
    ).any()
