"""Advantages before they go into the compiled update: their moments and scale, by hand."""

import numpy as np
import pytest

from minding.policies.families.actor_critic import moments, standardized


def test_each_row_has_zero_mean_and_unit_variance():
    x = np.float32([[1, 3, 50], [2, 2, 8]])
    counted = np.array([[1, 1, 0], [1, 1, 1]], bool)
    found = standardized(x, counted)
    np.testing.assert_allclose(found[0, :2], [-1, 1], rtol=1e-6)
    np.testing.assert_allclose(found[1], np.array([-2, -2, 4]) / np.sqrt(8), rtol=1e-6)


@pytest.mark.parametrize(("x", "counted"), [([[7]], None), ([[7, -3, 9]], np.array([[1, 0, 0]], bool))])
def test_a_single_number_that_counts_stays_as_it_is(x, counted):
    """Its own mean would make 0 of it, and no policy would ever learn from it."""
    assert standardized(np.float32(x), counted)[0, 0] == 7.0
    mean, deviation = moments(np.float32(x), counted)
    assert (mean.item(), deviation.item()) == (0.0, 1.0)
