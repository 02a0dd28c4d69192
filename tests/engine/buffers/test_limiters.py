"""Limiters say what may happen, and never let the ratio leave its bounds."""

import math

from fakes import refuses

from minding.engine.buffers import limiters
from minding.engine.buffers.limiters import LIMITERS, Limiter, make_limiter
from minding.engine.errors import ConfigError


def test_each_limiter_stops_samples_and_inserts_where_it_says():
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
    queue = limiters.queue(2)
    assert [queue.can_insert(1, size, size, 0) for size in (0, 1, 2)] == [True, True, False]
    assert [queue.can_sample(n, 2, 5, 3) for n in (1, 2, 3)] == [True, True, False]
    assert limiters.stack(2) == queue
    free, waiting = limiters.none(), limiters.min_size(3)
    assert [free.can_sample(9, size, size, 0) for size in (0, 1)] == [False, True]
    assert [waiting.can_sample(9, size, size, 0) for size in (2, 3)] == [False, True]
    assert free.can_insert(10**6, 10**6, 10**6, 0)
    assert waiting.can_insert(10**6, 10**6, 10**6, 0)


def test_invalid_limits_are_refused():
    refuses(
        ConfigError,
        ("min_size", lambda: limiters.min_size(0)),
        ("samples_per_insert", lambda: limiters.ratio(0.0, 1, 4.0)),
        ("samples_per_insert", lambda: limiters.ratio(math.nan, 1, 4.0)),
        ("at least max(1, samples_per_insert) = 8", lambda: limiters.ratio(8.0, 10, 4.0)),
        ("min_diff", lambda: Limiter(1, 1.0, 2.0, 2.0)),
        ("ratio", lambda: make_limiter("ration", rows=1, samples_per_insert=1.0, error=1.0, what="limiter")),
    )


def test_every_name_makes_a_limiter():
    made = {name: make_limiter(name, rows=4, samples_per_insert=2.0, error=6.0) for name in LIMITERS}
    assert made["ratio"] == limiters.ratio(2.0, 4, 6.0)
    assert made["none"] == limiters.none()
    assert made["min_size"] == limiters.min_size(4)
    assert made["queue"] == made["stack"] == limiters.queue(4)
