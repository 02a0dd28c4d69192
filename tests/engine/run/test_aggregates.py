"""Point estimates over seeds and their intervals, by numbers that can be worked out by hand."""

import numpy as np
import pytest
from fakes import refuses

from minding.engine.errors import NonFiniteError, ShapeError
from minding.engine.run import aggregates
from minding.engine.run.aggregates import (
    aggregate,
    bootstrap_interval,
    improvements,
    interquartile_mean,
    mean,
    performance_profile,
    thresholds_of,
)


def column(*scores):
    return np.array(scores, np.float64)[:, None]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # floor(n / 4) runs are left out at either end.
        ([7.0], 7.0),
        ([0.0, 9.0, 3.0], 4.0),
        ([100.0, 2.0, 3.0, -50.0], 2.5),
        ([100.0, 4.0, 3.0, 2.0, -50.0], 3.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0, 80.0], 4.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_each_side(scores, expected):
    assert interquartile_mean(column(*scores)) == pytest.approx([expected])


def test_the_interval_is_that_of_the_binomial_distribution():
    # One run of five has 1: the mean of a draw is k / 5 with k ~ B(5, 0.2), P(k <= 2) = 0.942, P(k <= 3) = 0.993.
    found = aggregate([0.0, 0.0, 1.0, 0.0, 0.0])
    assert found.mean == pytest.approx((0.2, 0.0, 0.6))
    # The interquartile mean of a draw is 0 for k <= 1, then 1/3, 2/3 and 1.
    assert found.iqm == pytest.approx((0.0, 0.0, 2 / 3))
    assert found.n == 5


def test_draws_are_made_within_each_task_and_figure(monkeypatch):
    tasks = [column(0.0, 0.0, 0.0), column(10.0, 10.0, 10.0)]
    assert [float(end[0]) for end in bootstrap_interval(tasks, mean)] == [5.0, 5.0]
    # Where one task alone varies, its half of the runs does: the mean of its draws is 0, 1/2 or 1.
    low, high = bootstrap_interval([column(0.0, 1.0), column(4.0, 4.0)], mean)
    assert (low[0], high[0]) == (2.0, 2.5)
    table = np.array([[0.0, 4.0], [1.0, 3.0], [2.0, 2.0], [30.0, -10.0]])
    assert interquartile_mean(table) == pytest.approx([1.5, 2.5])
    assert mean(table) == pytest.approx([8.25, -0.25])
    rng = np.random.default_rng(5)
    tasks = [rng.normal(size=(7, 30)), rng.normal(size=(4, 30))]
    whole = bootstrap_interval(tasks, interquartile_mean)
    monkeypatch.setattr(aggregates, "_CHUNK", 11 * 30 * 300)
    assert np.array_equal(bootstrap_interval(tasks, interquartile_mean), whole)


def test_improvement_counts_pairs_and_a_profile_runs():
    groups = {"a": [1.0, 2.0, 3.0], "b": [2.0, 2.0, 0.0], "c": [9.0, 9.0]}
    found = {(one, other): estimate for one, other, estimate in improvements(groups)}
    # Of nine pairs a wins five, and two are ties.
    assert found["a", "b"].value == pytest.approx(6 / 9)
    assert found["a", "b"].low < 6 / 9 < found["a", "b"].high
    assert found["a", "c"] == found["b", "c"] == (0.0, 0.0, 0.0)
    share, low, high = performance_profile([1.0, 2.0, 3.0, 4.0], np.array([0.0, 2.0, 4.0]))
    assert share.tolist() == [1.0, 0.5, 0.0]
    # The ends are multiples of a quarter: P(B(4, 1/2) = 0) = 1 / 16.
    assert (low.tolist(), high.tolist()) == ([1.0, 0.0, 0.0], [1.0, 1.0, 0.0])
    assert thresholds_of(groups.values(), 3).tolist() == [0.0, 3.0, 6.0]


def test_one_seed_has_no_spread_and_none_or_nan_say_nothing():
    assert aggregate([12.5]).iqm == (12.5, 12.5, 12.5)
    refuses(ShapeError, ("at least one", lambda: aggregate([])))
    refuses(NonFiniteError, ("nan", lambda: aggregate([1.0, float("nan")])))
