"""Dreamer's functions: scales, latents and two-hot targets; `test_dreamer.py` has their formulas in float64."""

import numpy as np
import pytest
from numeric import t, value

from minding.engine.process.runtime import to_device
from minding.policies.acting.arrays import symlog as numpy_symlog
from minding.policies.ops import imagination
from minding.policies.ops.imagination import symexp, symlog, two_hot, width

CLASSES = 4
TABLE, BEFORE = np.eye(CLASSES, dtype=np.float32), np.triu(np.ones((CLASSES, CLASSES), np.float32), 1)


def device(x):
    return to_device(np.asarray(x, np.float32))


@pytest.mark.parametrize("count", [1, 2, 19, 240])
def test_percentiles_are_those_of_numpy(count):
    x = np.random.default_rng(count).normal(0.0, 30.0, count)
    shares = (0.0, 0.05, 0.5, 0.95, 1.0)
    expected = np.percentile(x, [100 * share for share in shares])
    np.testing.assert_allclose(value(imagination.percentiles(device(x), shares)), expected, rtol=1e-5, atol=1e-5)


def test_the_scale_is_the_range_of_the_means_with_a_floor():
    running, low, high = imagination.NO_RANGE, 0.0, 0.0
    weight, means = 0.0, np.zeros(2)
    for k, (low, high) in enumerate([(-1.0, 4.0), (-3.0, 9.0), (0.0, 2.0)]):
        running = value(imagination.running_range(device(running), device([low, high]), 0.9))
        weight, means = 0.9 * weight + 0.1, 0.9 * means + 0.1 * np.array([low, high])
        expected = (means[1] - means[0]) / weight
        np.testing.assert_allclose(value(width(device(running), 1.0)), [expected], rtol=1e-5)
        # The first update alone counts at first.
        assert k > 0 or expected == pytest.approx(5.0)
    assert value(width(device(running), 100.0)).tolist() == [100.0]


def test_a_draw_at_either_end_is_a_class():
    p = np.full((2, CLASSES), 0.25)
    hot = value(
        imagination.drawn(
            device(p), device([0.0, np.nextafter(np.float32(1), np.float32(0))]), device(BEFORE), device(TABLE)
        )
    )
    assert hot.argmax(axis=1).tolist() == [0, CLASSES - 1]
    assert value(imagination.likeliest(device([[0.2, 0.5, 0.2, 0.1]]), device(TABLE))).tolist() == [[0, 1, 0, 0]]


def test_symlog_and_its_inverse_over_nine_orders_of_magnitude():
    x = np.concatenate([-np.logspace(-3, 6, 40), np.logspace(-3, 6, 40)])
    squeezed, expected = value(symlog(device(x))), np.copysign(np.log1p(np.abs(x)), x)
    for found in (squeezed, numpy_symlog(x)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(symexp(to_device(squeezed))), x, rtol=1e-5, atol=1e-6)


def test_a_number_lies_between_its_two_bins_by_hand():
    # Bins -2, -1, 0, 1, 2; beyond them it counts as the last one.
    found = value(two_hot(t(0.25, -1.0, 7.0), -2.0, 1.0, t(*range(5))))
    assert found.tolist() == [[0, 0, 0.75, 0.25, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_a_number_that_is_not_finite_shows():
    found = value(two_hot(t(np.nan, np.inf, 1.0), -2.0, 1.0, t(*range(5))))
    assert np.isnan(found[:2]).all()
    assert not np.isfinite(value(symlog(t(np.nan, np.inf, -np.inf)))).any()
    assert np.isfinite(found[2]).all()
