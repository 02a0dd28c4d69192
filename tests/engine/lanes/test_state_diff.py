"""What is sent of a state: its difference from the one before, or all of it."""

import math

import hypothesis.strategies as st
import lane_toys as toys
import numpy as np
import pytest
from hypothesis import given

from minding.engine.lanes import supervised
from minding.engine.lanes.state_diff import Changes, Rows, applied, difference
from minding.engine.lanes.threads import ThreadTransport


def test_workers_that_die_between_changes_keep_the_bits(tmp_path, monkeypatch):
    lanes = {"max_staleness": 2, "collectors": 2, "transport": "threads"}
    whole = toys.run(12, lanes)
    monkeypatch.setattr(ThreadTransport, "increments", True)
    died = toys.run(12, lanes, event=toys.ExitOnce(tmp_path, count=4, t=2))
    assert died.restarts >= 1
    assert died.rows == whole.rows


GRID = np.arange(12, dtype=np.float32).reshape(6, 2)


def bits(value):
    """A value with its types and the bytes of its arrays, comparable."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.flags.c_contiguous, value.tobytes()
    if isinstance(value, dict):
        return "dict", [(key, bits(entry)) for key, entry in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [bits(entry) for entry in value]
    return type(value), value.hex() if isinstance(value, float) else value


def sent(before, now):
    """The difference, once it was found that `now` comes of it."""
    changes = difference(before, now)
    untouched = bits(before)
    assert bits(applied(before, changes)) == bits(now)
    assert bits(before) == untouched
    return changes


def test_what_continues_is_sent_as_its_new_rows():
    changes = sent({"env": {"actions": GRID[:4], "seed": 3}}, {"env": {"actions": GRID, "seed": 3}})
    (rows,) = changes.entries["env"].entries.values()
    assert rows.rows.tolist() == [[8.0, 9.0], [10.0, 11.0]]
    assert list(changes.entries["env"].entries) == ["actions"]
    before = {"a": GRID, "gone": 1, "list": [GRID, {"x": 1}], "nan": np.array([math.nan])}
    assert sent(before, {**before, "a": GRID.copy()}) == Changes(None, {})
    changes = sent(before, {"new": None, "list": [GRID, {"x": 2}, "more"], "a": GRID, "nan": before["nan"]})
    assert changes.keys == ("new", "list", "a", "nan")
    assert changes.entries == {"new": None, "list": Changes((0, 1, 2), {1: Changes(None, {"x": 2}), 2: "more"})}


DIFFERENT = {
    "the sign of zero": (np.array([0.0]), np.array([-0.0])),
    "a NaN of other bits": (np.array([math.nan]), -np.array([math.nan])),
    "its first row": (GRID[:4], GRID[1:]),
    "shorter": (GRID, GRID[:4]),
    "wider": (GRID, np.zeros((7, 3), np.float32)),
    "dtype": (np.arange(3), np.arange(3.0)),
    "order": (GRID, np.asfortranarray(GRID)),
    "objects": (np.array([None]), np.array([None])),
    "bool": (1, True),
    "float": (1, 1.0),
    "zero": (0.0, -0.0),
    "float NaN": (math.nan, math.nan),
    "tuple": ((1, 2), (1, 2)),
    "keys": ({1: 2}, {True: 2}),
    "long list": ([0] * 200, [0] * 200),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_values_that_differ_or_cannot_be_compared_are_sent_whole(name):
    before, now = DIFFERENT[name]
    assert sent({"it": before}, {"it": now}).entries["it"] is now


numbers = st.integers() | st.floats() | st.booleans() | st.sampled_from(["", "x", None])


@st.composite
def arrays(draw):
    kind = draw(st.sampled_from(["u1", "<f4", ">f8", "i8", "c16", "U2", "S3", "M8[s]", "V8", "O"]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    # Few values, so that one often continues another.
    data = np.random.default_rng(draw(st.integers(0, 1))).integers(0, 256, (*shape, 16)).astype(np.uint8)
    if kind == "O":
        return np.full(shape, None)
    size = np.dtype(kind).itemsize
    array = np.ascontiguousarray(data[..., :size] % 64 if kind == "U2" else data[..., :size]).view(np.uint8)
    if kind == "U2":
        array[..., 1::4] = array[..., 2::4] = array[..., 3::4] = 0
    array = array.view(kind)[..., 0]
    return np.asfortranarray(array) if draw(st.booleans()) else array


trees = st.recursive(
    numbers | arrays(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
states = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@given(states, st.lists(states, max_size=3))
def test_states_are_restored_bit_by_bit(before, later):
    for now in later:
        sent(before, now)
        before = now


@given(st.integers(0, 20), st.integers(0, 20), arrays())
def test_growing_arrays_are_restored_bit_by_bit(first, more, array):
    whole = np.stack([array] * (first + more + 1))
    changes = sent({"it": whole[:first]}, {"it": whole})
    if array.dtype.kind not in "OV" and whole.flags.c_contiguous:
        assert len(changes.entries["it"].rows) == more + 1


def test_answers_with_a_large_state_are_small_and_it_is_whole(monkeypatch):
    monkeypatch.setattr(ThreadTransport, "increments", True)
    found, apply = [], supervised.applied
    monkeypatch.setattr(supervised, "applied", lambda before, changes: found.append(changes) or apply(before, changes))
    outcome = toys.run(9, {"max_staleness": 0, "transport": "threads"})
    assert outcome.rows == toys.run(9).rows
    trails = [changes.entries["1:ToyCollector"].entries["env"].entries["trail"] for changes in found]
    # An episode takes six rollouts. After the first the state is small, after the second the one before it was.
    assert [(type(trail), trail.rows.shape) for trail in trails] == [(Rows, (4, 2048))] * (4 + 1)
