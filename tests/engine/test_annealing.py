"""Shapes of schedules, by numbers."""

import pytest

from minding.engine.annealing import SHAPES, left, rate_left

POINTS = [[0.1, 1.0], [0.5, 0.2], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("shape", "share", "expected"),
    [
        ("linear", 0.25, 0.75),
        ("linear", 1.5, 0.0),
        ("exp", 0.0, 1.0),
        ("exp", 2.0, 0.1353352832366127),
        ("constant", 7.0, 1.0),
        ("piecewise", 0.0, 1.0),
        ("piecewise", 0.3, 0.6),
        ("piecewise", 0.75, 0.1),
        ("piecewise", 3.0, 0.0),
    ],
)
def test_what_is_left(shape, share, expected):
    assert left(shape, share, POINTS) == pytest.approx(expected)
    assert shape in SHAPES


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.25, 0.55), (0.5, 0.1), (0.75, 0.05), (1.0, 0.0)])
def test_a_piecewise_schedule_begins_with_the_whole_value(share, expected):
    assert left("piecewise", share, [[0.5, 0.1], [1, 0]]) == pytest.approx(expected)
    assert left("piecewise", share, [[0, 0.5], [1, 0.5]]) == 0.5


def test_an_exponential_learning_rate_ends_within_its_schedule():
    assert rate_left("exp", 1.0) == pytest.approx(0.006737946999)
    assert rate_left("linear", 0.75) == 0.25
    assert rate_left("piecewise", 0.3, POINTS) == pytest.approx(0.6)
