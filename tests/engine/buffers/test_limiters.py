"""Limiters say what may happen, and never let the ratio leave its bounds."""

import math

import numpy as np
import pytest

from minding.engine.buffers import limiters
from minding.engine.buffers.limiters import LIMITERS, Limiter, make_limiter
from minding.engine.errors import ConfigError


def test_none_and_min_size_stop_samples_only():
    free, waiting = limiters.none(), limiters.min_size(3)
    assert [free.can_sample(9, size, size, 0) for size in (0, 1)] == [False, True]
    assert [waiting.can_sample(9, size, size, 0) for size in (2, 3)] == [False, True]
    assert free.can_insert(10**6, 10**6, 10**6, 0)
    assert waiting.can_insert(10**6, 10**6, 10**6, 0)


def test_the_ratio_is_counted_from_where_the_table_first_held_its_rows():
    # r = 2, 10 rows, error 4: 20 - 4 <= 2 I - S <= 20 + 4.
    limiter = limiters.ratio(2.0, 10, 4.0)
    assert (limiter.min_diff, limiter.max_diff) == (16.0, 24.0)
    # Up to 10 rows, inserts are free.
    assert [limiter.can_insert(n, 0, 0, 0) for n in (10, 12, 13)] == [True, True, False]
    assert [limiter.can_insert(1, 12, 12, sampled) for sampled in (0, 1, 2)] == [False, False, True]
    assert [limiter.can_sample(n, 10, 10, 0) for n in (4, 5)] == [True, False]
    assert not limiter.can_sample(1, 9, 9, 0)
    # Rows that were removed count as inserted, and the table waits for its size again.
    assert not limiter.can_sample(1, 9, 30, 0)


def test_the_error_may_be_both_bounds_as_in_reverb():
    assert limiters.ratio(2.0, 10, (16.0, 24.0)) == limiters.ratio(2.0, 10, 4.0)
    ahead = limiters.ratio(2.0, 10, (0.0, 40.0))
    # 20 rows may be inserted before the first sample.
    assert [ahead.can_insert(1, n, n, 0) for n in (19, 20)] == [True, False]


def test_a_queue_allows_one_sample_per_row_and_a_bounded_number_of_rows():
    queue = limiters.queue(2)
    assert [queue.can_insert(1, size, size, 0) for size in (0, 1, 2)] == [True, True, False]
    assert [queue.can_sample(n, 2, 5, 3) for n in (1, 2, 3)] == [True, True, False]
    assert limiters.stack(2) == queue


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: limiters.min_size(0), "expected min_size of at least 1 row, got 0"),
        (lambda: limiters.ratio(0.0, 1, 4.0), "expected samples_per_insert > 0, got 0"),
        (lambda: limiters.ratio(math.nan, 1, 4.0), "expected"),
        (lambda: limiters.ratio(8.0, 10, 4.0), r"error of at least max\(1, samples_per_insert\) = 8 samples, got 4"),
        (lambda: limiters.ratio(2.0, 10, (18.0, 21.0)), r"at least 2 max\(1, .*\) = 4 samples apart, got \(18"),
        (lambda: limiters.ratio(2.0, 10, (21.0, 40.0)), "exceeds samples_per_insert x rows = 20"),
        (lambda: Limiter(1, 1.0, 2.0, 2.0), "expected min_diff < max_diff, got 2.0 and 2.0"),
        (
            lambda: make_limiter("ration", rows=1, samples_per_insert=1.0, error=1.0, what="limiter"),
            "limiter='ration' is unknown; did you mean 'ratio'",
        ),
    ],
)
def test_invalid_limits_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_every_name_makes_a_limiter():
    made = {name: make_limiter(name, rows=4, samples_per_insert=2.0, error=6.0) for name in LIMITERS}
    assert made["ratio"] == limiters.ratio(2.0, 4, 6.0)
    assert made["none"] == limiters.none()
    assert made["min_size"] == limiters.min_size(4)
    assert made["queue"] == made["stack"] == limiters.queue(4)


def replay(steps, seed):
    """Eight writers and a reader in a random order, which ask before each step; returns the extremes of I r - S."""
    rng = np.random.default_rng(seed)
    limiter = limiters.ratio(float(rng.choice([0.5, 2.0, 8.0])), 50, 20.0)
    inserted = sampled = refused = 0
    low, high = math.inf, -math.inf
    for who in rng.integers(0, 9, steps).tolist():
        count = 1 + who % 4
        if who < 8 and limiter.can_insert(count, inserted, inserted, sampled):
            inserted += count
        elif who == 8 and limiter.can_sample(8, inserted, inserted, sampled):
            sampled += 8
        else:
            refused += 1
        either = limiter.can_insert(1, inserted, inserted, sampled) or limiter.can_sample(
            1, inserted, inserted, sampled
        )
        assert either, "deadlock"
        if inserted > 50:
            diff = inserted * limiter.samples_per_insert - sampled
            low, high = min(low, diff), max(high, diff)
    return limiter, low, high, refused


@pytest.mark.parametrize("seed", range(3))
def test_eight_writers_and_a_reader_stay_within_the_bounds_and_never_block_each_other(seed):
    limiter, low, high, refused = replay(3000, seed)
    assert limiter.min_diff <= low < high <= limiter.max_diff
    assert refused
