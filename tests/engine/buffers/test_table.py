"""Tables against plain lists: what is drawn, what is removed, and when limiters allow either."""

import types

import numpy as np
import pytest
from buffer_kit import FIELDS, contents, numbers, rows
from fakes import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from minding.configs.chains.off_policy import replay_buffer
from minding.engine.buffers import Priority, ReplayBuffer, Rows, Table, Tables, limiters
from minding.engine.buffers.priorities import LARGEST
from minding.engine.buffers.selectors import SELECTORS, make_selector
from minding.engine.errors import CheckpointError, ConfigError, LimitError
from minding.engine.process import runtime

# Loading changes the recursion limit, which hypothesis takes amiss within a test.
runtime.load()


def held(table):
    """The numbers of the rows that it holds."""
    return sorted(contents(table.rows, np.array(list(table._times), np.int64)))


def sampled(table, updates=1, batch=1):
    """The numbers of a batch."""
    return numbers(table.sample(updates, batch)).reshape(-1).tolist()


class Listed:
    """What a selector should choose, from a list of [place, priority, number of its last change, of its insertion]."""

    def __init__(self):
        self.items, self.count = [], 0

    def insert(self, place, priority):
        self.items.append([place, priority, self.count, self.count])
        self.count += 1

    def update(self, place, priority):
        item = next(item for item in self.items if item[0] == place)
        item[1:3] = priority, self.count
        self.count += 1

    def remove(self, place):
        self.items = [item for item in self.items if item[0] != place]

    def choices(self, name):
        """The places that may be chosen."""
        first = {
            "fifo": lambda item: item[3],
            "lifo": lambda item: -item[3],
            "min_heap": lambda item: (item[1], item[2]),
            "max_heap": lambda item: (-item[1], item[2]),
        }
        if name in first:
            return {min(self.items, key=first[name])[0]}
        if name == "prioritized" and any(item[1] for item in self.items):
            return {item[0] for item in self.items if item[1]}
        return {item[0] for item in self.items}


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7), st.sampled_from([0.0, 0.5, 1.0, 2.0])), max_size=60)


@pytest.mark.parametrize("name", SELECTORS)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_a_selector_chooses_as_a_list_does_also_when_restored(name, steps):
    selector, plain, rng = make_selector(name, 8, 1.0, "sampler"), Listed(), np.random.default_rng(0)
    places = set()
    for kind, place, priority in steps:
        if kind == 3:
            fresh = make_selector(name, 8, 1.0, "sampler")
            fresh.load_state_dict(selector.state_dict())
            selector = fresh
        elif kind == 0 and place in places:
            selector.remove(np.array([place]))
            plain.remove(place)
            places.remove(place)
        elif place in places:
            selector.update(np.array([place]), np.array([priority]))
            plain.update(place, priority)
        else:
            selector.insert(np.array([place]), np.array([priority]))
            plain.insert(place, priority)
            places.add(place)
        if places:
            assert selector.choose(rng)[0] in plain.choices(name)
            assert set(selector.choose_many(4, rng)[0].tolist()) <= plain.choices(name)


@pytest.mark.parametrize("name", SELECTORS)
def test_many_places_at_once_are_one_after_the_other(name):
    many, single = (make_selector(name, 16, 0.6, "sampler") for _ in range(2))
    priorities = np.random.default_rng(1).random(16)
    # A place that is given twice keeps the last priority.
    changed, new = np.array([3, 9, 3, 0]), np.array([0.1, 0.7, 2.0, 0.0])
    gone = np.array([5, 15, 0])
    many.insert(np.arange(16), priorities)
    many.update(changed, new)
    many.remove(gone)
    for place in range(16):
        single.insert(np.array([place]), priorities[place : place + 1])
    for k in range(4):
        single.update(changed[k : k + 1], new[k : k + 1])
    for place in gone:
        single.remove(np.array([place]))
    assert all(np.array_equal(one, other) for one, other in zip(*(s.state_dict().values() for s in (many, single))))
    draws = [each.choose_many(200, np.random.default_rng(2)) for each in (many, single)]
    assert all(np.array_equal(one, other) for one, other in zip(*draws))


def test_probabilities_match_the_samples():
    rng = np.random.default_rng(0)
    selector = make_selector("prioritized", 4, 0.5, "sampler")
    selector.insert(np.arange(4), np.array([1.0, 4.0, 9.0, 0.0]))
    places, probability = selector.choose_many(60_000, rng)
    share = np.bincount(places, minlength=4) / len(places)
    np.testing.assert_allclose(share, [1 / 6, 2 / 6, 3 / 6, 0.0], atol=0.01)
    assert dict(zip(places.tolist(), probability.round(6).tolist())) == {0: 0.166667, 1: 0.333333, 2: 0.5}
    selector = make_selector("uniform", 8, 0.5, "sampler")
    selector.insert(np.arange(6), np.ones(6))
    share = np.bincount(selector.choose_many(30_000, rng)[0], minlength=8) / 30_000
    np.testing.assert_allclose(share, [1 / 6] * 6 + [0, 0], atol=0.01)


@pytest.mark.parametrize(
    ("remover", "left"),
    [("fifo", [2, 3, 4, 5]), ("lifo", [0, 1, 2, 5]), ("min_heap", [1, 3, 4, 5]), ("max_heap", [0, 2, 4, 5])],
)
def test_a_full_table_removes_what_its_remover_chooses(remover, left):
    table = Table(4, FIELDS, remover=remover)
    table.push(rows(0, 1, 2, 3, priority=[1.0, 9.0, 2.0, 8.0]))
    table.push(rows(4, priority=[5.0]))
    table.push(rows(5, priority=[3.0] if remover == "min_heap" else [4.0]))
    assert held(table) == left
    assert (len(table), table.inserted) == (4, 6)


def test_a_row_sampled_often_enough_stays_until_the_next_push():
    table = Table(4, FIELDS, "fifo", "fifo", max_times_sampled=2)
    table.push(rows(0, 1, 2))
    batch = table.sample(1, 4)
    assert numbers(batch).tolist() == [[0, 0, 1, 1]]
    assert held(table) == [2]
    refuses(LimitError, ("sample of 3 rows", lambda: table.sample(1, 3)))
    table.push(rows(3, 4, 5))
    assert sampled(table, 2, 2) == [2, 2, 3, 3]


@pytest.mark.parametrize(("kind", "order"), [("fifo", [0, 1, 2]), ("lifo", [2, 1, 0])])
def test_a_queue_and_a_stack_give_each_row_once(kind, order):
    limiter = limiters.queue(3) if kind == "fifo" else limiters.stack(3)
    table = Table(3, FIELDS, kind, kind, max_times_sampled=1, limiter=limiter)
    table.push(rows(0, 1, 2))
    refuses(LimitError, ("push of 1 rows", lambda: table.push(rows(3))))
    assert [sampled(table)[0] for _ in range(3)] == order
    refuses(ConfigError, ("empty", lambda: table.sample(1, 1)))
    table.push(rows(3))
    assert sampled(table) == [3]


def test_removed_rows_are_passed_on_with_their_samples():
    removed = []

    def note(fields, times):
        assert fields["image"].shape == (len(times), 2)
        removed.append((fields["number"].astype(int).tolist(), times.tolist()))

    table = Table(3, FIELDS, "fifo", "fifo", max_times_sampled=2, on_removal=note)
    table.push(rows(0, 1, 2))
    table.sample(1, 3)
    table.push(rows(3, 4))
    # One for room, whose places the others get; the first was sampled as often as it may be.
    assert removed == [([0], [2]), ([1], [1])]


def test_importance_weights_follow_the_formula():
    table = Table(4, FIELDS, "prioritized", priority=Priority(1.0, 0.5, 2))
    table.push(rows(0, 1, priority=[1.0, 3.0]))
    batch = table.sample(1, 64)
    found = numbers(batch)[0]
    # (N P)^-0.5: N P = 0.5 and 1.5; the largest weight is 1.
    np.testing.assert_allclose(batch.weight[0], np.where(found == 0, 1.0, (0.5 / 1.5) ** 0.5), rtol=1e-6)
    assert table.beta == 0.75
    table.update(batch, np.where(found == 0, 1.0, 0.0)[None].astype(np.float32))
    assert set(sampled(table, 1, 64)) == {0}
    # What comes without a priority has the highest one so far.
    table.push(rows(2))
    share = np.bincount(sampled(table, 10, 1000), minlength=3) / 10_000
    np.testing.assert_allclose(share, [0.25, 0.0, 0.75], atol=0.03)


PUSHES = st.tuples(st.just("push"), st.integers(1, 3))
UPDATES = st.tuples(st.just("update"), st.integers(0, 5))
OPERATIONS = st.lists(PUSHES | UPDATES | st.just(("sample", 0)), max_size=40)


@pytest.mark.parametrize("kind", ["table", "table with a limit of samples", "ring"])
@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS)
def test_an_update_reaches_sampled_rows_and_not_their_successors(kind, operations):
    if kind == "ring":
        buffer = ReplayBuffer(4, FIELDS, priority=Priority(1.0))
    else:
        buffer = Table(4, FIELDS, "prioritized", max_times_sampled=4 * ("limit" in kind), priority=Priority(1.0))
    expected, batches, pushed = {}, [], 0
    for operation, n in operations:
        if operation == "push":
            new = range(pushed, pushed + n)
            buffer.push(rows(*new, priority=[1.0] * n))
            expected.update(dict.fromkeys(new, 1.0))
            pushed += n
        elif operation == "sample" and len(buffer) and buffer.can_sample(3):
            batch = buffer.sample(1, 3)
            batches.append((batch, numbers(batch)[0].tolist()))
        elif operation == "update" and n < len(batches):
            batch, sampled_rows = batches.pop(n)
            given = [10.0 + pushed + k for k in range(3)]
            buffer.update(batch, np.array([given], np.float32))
            expected.update(zip(sampled_rows, given))
    if kind == "ring":
        places = np.arange(len(buffer))
        found = dict(zip(contents(buffer.ring, places), buffer._priorities.state_dict(places)["priorities"].tolist()))
    else:
        state = buffer._sampler.state_dict()
        found = dict(zip(contents(buffer.rows, state["held"]), state["mass"].tolist()))
    assert found == pytest.approx({number: expected[number] for number in found}, abs=1e-5)


@pytest.mark.parametrize("name", ["min_heap", "max_heap"])
def test_a_heap_that_is_never_updated_stays_bounded(name):
    table = Table(100, FIELDS, name, "fifo")
    for n in range(0, 20_000, 50):
        table.push(rows(*range(n, n + 50), priority=[1.0] * 50))
    assert len(table._sampler._heap) <= 64 + 4 * 100


def test_the_largest_priority_leaves_the_weights_finite():
    table = Table(4, FIELDS, "prioritized", priority=Priority(1.0, 1.0))
    table.push(rows(0, 1, 2, 3, priority=[LARGEST, LARGEST, LARGEST, 1.0]))
    assert np.isfinite(table.sample(2, 64).weight).all()
    for buffer in (table, ReplayBuffer(4, FIELDS, priority=Priority(1.0))):
        with pytest.raises(ConfigError, match=r"priority 1e\+308: expected at most 3.4e\+38"):
            buffer.push(rows(4, priority=[1e308]))


def test_tables_share_a_row_until_the_last_lets_it_go():
    store = Rows(8, FIELDS)
    recent = Table(2, store, "fifo", "fifo", max_times_sampled=1)
    best = Table(3, store, "max_heap", "min_heap")
    both = Tables(recent, best)
    for n, priority in enumerate((5.0, 1.0, 4.0)):
        both.push(rows(n, priority=[priority]))
    both.push(rows(3, priority=[3.0]))
    assert (held(recent), held(best), len(both)) == ([2, 3], [0, 2, 3], 3)
    assert sampled(recent, 1, 2) == [2, 3]
    assert (held(recent), len(both)) == ([], 3)
    assert sampled(best) == [0]


@pytest.mark.parametrize("sampler", SELECTORS)
def test_a_restored_table_continues_as_if_it_had_not_been_saved(sampler):
    def made(limiter=None):
        return Table(
            5, FIELDS, sampler, "min_heap", max_times_sampled=3, limiter=limiter, priority=Priority(1.0), seed=3
        )

    def go_on(table, start):
        found = []
        for n in range(start, start + 6):
            table.push(rows(n, priority=[float(n % 4 + 1)]))
            batch = table.sample(1, 2)
            found.append(numbers(batch)[0].tolist())
            table.update(batch, np.full((1, 2), 2.0, np.float32))
        return found, held(table)

    table = made()
    table.push(rows(90, 91, 92))
    go_on(table, 0)
    state = table.state_dict()
    copy = made()
    copy.load_state_dict({**state, "rows": plain(state["rows"])})
    assert (copy.inserted, copy.sampled, copy.minibatches) == (table.inserted, table.sampled, table.minibatches)
    assert go_on(copy, 10) == go_on(table, 10)
    # The limiter of the running configuration counts, with what was inserted and sampled so far.
    limited = made(limiters.ratio(1.0, 1, 1.0))
    limited.load_state_dict({**state, "rows": plain(state["rows"])})
    refuses(LimitError, ("9 inserted x 1 samples per insert - 12 sampled", lambda: limited.sample(1, 1)))
    other = Table(5, FIELDS, sampler, "fifo")
    refuses(CheckpointError, ("'remover': 'min_heap'", lambda: other.load_state_dict(state)))


def plain(state):
    """Rows as they are read from a checkpoint."""
    return {**state, "tables": {name: np.array(blocks.array) for name, blocks in state["tables"].items()}}


def test_the_chain_has_the_configured_table(tiny_config):
    changes = {"replay": "table", "table.sampler": "lifo", "table.remover": "lifo", "table.limiter": "stack"}
    overrides = {f"policy.other.{key}": value for key, value in changes.items()}
    policy = types.SimpleNamespace(learn_mode=types.SimpleNamespace(fields=FIELDS))
    once = {"policy.other.table.max_times_sampled": 1}
    table = replay_buffer(tiny_config("dqn", **overrides, **once), policy)
    assert (table.sampler, table.remover, table.max_times_sampled) == ("lifo", "lifo", 1)
    assert table.limiter == limiters.stack(1)
    refuses(ConfigError, ("limiter='stack'", lambda: replay_buffer(tiny_config("dqn", **overrides), policy)))


# Limiters


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


def test_the_error_may_be_both_bounds_as_in_reverb():
    assert limiters.ratio(2.0, 10, (16.0, 24.0)) == limiters.ratio(2.0, 10, 4.0)
    ahead = limiters.ratio(2.0, 10, (0.0, 40.0))
    # 20 rows may be inserted before the first sample.
    assert [ahead.can_insert(1, n, n, 0) for n in (19, 20)] == [True, False]
