"""Advantages before they go into the compiled update: their moments and scale, by hand."""

import numpy as np
import pytest

from minding.policies.families.actor_critic import moments, standardized


@pytest.mark.parametrize(("x", "counted"), [([[7]], None), ([[7, -3, 9]], np.array([[1, 0, 0]], bool))])
def test_a_single_number_that_counts_stays_as_it_is(x, counted):
    """Its own mean would make 0 of it, and no policy would ever learn from it."""
    assert standardized(np.float32(x), counted)[0, 0] == 7.0
    mean, deviation = moments(np.float32(x), counted)
    assert (mean.item(), deviation.item()) == (0.0, 1.0)
