"""With `lanes.order=arrival` an iteration takes a rollout that is there, and none gets too old."""

import collections
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_toys import run

from minding.engine.errors import ConfigError
from minding.engine.lanes import LaneOptions
from minding.engine.lanes.collect import next_rows

GATE = threading.Event()


def test_any_row_may_be_next_until_a_rollout_would_get_too_old():
    assert next_rows([[0], [0]], 0, 3) == [0, 1]
    # At version 2 the request of version 0 may wait for one more iteration, at 3 for none.
    assert next_rows([[1], [0]], 2, 3) == [0, 1]
    assert next_rows([[1], [0]], 3, 3) == [1]
    # Two of version 0 take the last two iterations in which they are allowed.
    assert next_rows([[0], [2], [0]], 2, 3) == [0, 2]
    # Behind a newer request of its own row no rollout can overtake.
    assert next_rows([[0, 0], [1]], 2, 3) == [0]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 5),
    more=st.integers(0, 4),
    choices=st.lists(st.integers(0, 4), min_size=40, max_size=40),
)
def test_no_rollout_gets_older_than_allowed_whoever_is_fast(rows, more, choices):
    staleness = max(1, rows - 1 + more)
    under_way = [collections.deque() for _ in range(rows)]
    for version, choice in enumerate(choices):
        while sum(map(len, under_way)) < min(staleness, rows) + 1:
            min(under_way, key=len).append(version)
        allowed = next_rows(under_way, version, staleness)
        taken = under_way[allowed[choice % len(allowed)]].popleft()
        assert 0 <= version - taken <= staleness


def wait_for_the_gate(collector, count, step):
    """The second collector begins only once the main process lets it."""
    if collector.index == 1 and count == 0:
        assert GATE.wait(30.0)


def open_the_gate(task, ctx):
    if ctx.total_step == 2:
        GATE.set()


def test_a_slow_collector_is_passed_over_and_its_rollout_is_used_in_time():
    GATE.clear()
    lanes = {"order": "arrival", "max_staleness": 4, "collectors": 2, "transport": "threads"}
    found = run(12, lanes, event=wait_for_the_gate, also=(open_the_gate,))
    workers = found.record.column("rollout", "worker")
    # With the exact order the second iteration would have waited for a collector that waits for the third.
    assert workers[:3] == [0, 0, 0]
    assert 1 in workers
    assert max(lag["max"] for lag in found.record.column("policy_lag")) <= 4
    # Nothing is lost or used twice, and counters go on.
    for worker in (0, 1):
        counts = [row["rollout"]["count"] for row in found.record.rows if row["rollout"]["worker"] == worker]
        assert counts == list(range(len(counts)))
    steps = found.record.column("env_step")
    assert all(3 <= after - before <= 4 for before, after in zip([0, *steps], steps))
    assert found.task.resume_guarantee == "arrival"


def test_without_staleness_there_is_no_order_of_arrival():
    with pytest.raises(ConfigError, match=r"lanes\.order='arrival' with lanes\.max_staleness=0"):
        LaneOptions(order="arrival", max_staleness=0)
