"""Prioritized sequences: where they begin, their priorities by hand and against a list of episodes, exact resume."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_episode import FIELDS, World, fill, histories, numbers, sequences

from minding.engine.buffers import PrioritizedSequenceBuffer
from minding.engine.buffers.sequences import mix
from minding.engine.errors import ConfigError, NonFiniteError


def buffer(capacity=20, length=3, **options):
    return PrioritizedSequenceBuffer(capacity, FIELDS, length=length, **{"alpha": 1.0, **options})


def priorities(made):
    """Those of the sequences that can be drawn, by the number of their first row and how many rows they may have."""
    state = made.state_dict()
    windows = state["windows"]
    first = made.ring.read("number", windows["first"] % made.capacity).astype(int).tolist()
    found = dict(zip(zip(first, windows["count"].tolist(), strict=True), state["priorities"].tolist(), strict=True))
    assert len(found) == len(first)
    return found


def test_the_mix_by_hand():
    errors = np.array([[9.0, 1.0, 3.0], [2.0, 0.0, 7.0], [4.0, 5.0, 8.0]], np.float32)
    learned = np.array([[False, True, True], [True, True, False], [True, False, False]])
    assert mix(errors, learned, 0.75) == pytest.approx([0.75 * 4 + 0.25 * 3, 0.75 + 0.25 * 0.5, 3.0])
    assert mix(errors, learned, 0.0) == pytest.approx([3.0, 0.5, 3.0])


def test_sequences_begin_with_every_stride_th_row_of_an_episode_and_before_the_first_and_grow_with_it():
    world, made = World(2), buffer(length=4, stride=2, eta=0.5)

    def push(*steps):
        rows = world.rows(steps)
        # The age of a row is its error.
        made.push({**rows, "priority": rows["age"].astype(np.float32)})

    push(["go", "go"], ["go", "end"], ["go", "go"])
    first = {(1000, 4): 1.5, (1000, 2): 0.75, (1002, 4): 2.0, (2000, 4): 0.75, (2000, 2): 0.75}
    assert priorities(made) == pytest.approx({**first, (3000, 4): 0.0, (3000, 2): 0.0}, abs=1e-5)
    push(["go", "reset"], ["end", "go"])
    # 1000 and what began before the reset are complete; 1004 begins in the last row.
    assert priorities(made) == pytest.approx(
        {
            **{**first, (1000, 4): 2.25, (1002, 4): 3.5, (1004, 4): 4.0},
            **{(3000, 4): 0.0, (3000, 2): 0.0, (4000, 4): 0.0, (4000, 2): 0.0},
        },
        abs=1e-5,
    )
    drawn = {tuple(row[filled]) for row, filled, _ in sequences(made.sample(1, 100))}
    assert {(1000, 1001, 1002, 1003), (1000, 1001), (1002, 1003, 1004), (1004,), (2000, 2001)} <= drawn


def test_sequences_without_errors_have_the_highest_priority_and_learning_sets_theirs():
    world, made = World(1), buffer(length=2, stride=2, eta=0.25, burn_in=1)
    made.push(world.rows([["go"], ["go"], ["go"], ["go"]]))
    assert priorities(made) == {(1000, 2): 1.0, (1002, 2): 1.0}
    batch = made.sample(1, 4)
    # One from each quarter. Errors in the burn-in do not count, whatever they are.
    assert numbers(batch)[0].T.tolist() == [[1000, 1000, 1001]] * 2 + [[1001, 1002, 1003]] * 2
    assert batch.weight.tolist() == [[1.0] * 4]
    errors = np.array([[np.nan] * 4, [1.0, 2.0, 0.0, 4.0], [3.0, 6.0, 1.0, 8.0]], np.float32)
    made.update(batch, errors[None])
    assert priorities(made) == pytest.approx({(1000, 2): 0.25 * 6 + 0.75 * 4, (1002, 2): 0.25 * 8 + 0.75 * 6}, abs=1e-5)
    made.push(world.rows([["go"]]))
    assert priorities(made)[1004, 2] == pytest.approx(6.5, abs=1e-5)
    errors[1, 0] = np.nan
    with pytest.raises(NonFiniteError, match="priority of row 0 is NaN or infinite"):
        made.update(batch, errors[None])


def test_learning_sets_the_priorities_of_sequences_that_are_still_held():
    world, made = World(1), buffer(4, length=2, stride=1, eta=0.0)
    made.push(world.rows([["go"], ["go"], ["go"]]))
    assert list(priorities(made)) == [(1000, 2), (1000, 1), (1001, 2), (1002, 2)]
    batch = made.sample(1, 4)
    # The first row and both sequences that begin with it are overwritten.
    made.push(world.rows([["go"], ["go"]]))
    made.update(batch, np.array([[[1, 2, 3, 4], [9, 0, 5, 0]]], np.float32))
    held = {(1001, 2): 4.0, (1002, 2): 4.0, (1003, 2): 1.0, (1004, 2): 1.0}
    assert priorities(made) == pytest.approx(held, abs=1e-5)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(history=histories(), length=st.integers(1, 6), part=st.integers(1, 6), burn_in=st.integers(0, 2))
def test_each_row_of_an_episode_is_drawn_equally_often(history, length, part, burn_in):
    stride = length // part if part <= length and length % part == 0 else 1
    made = buffer(100, length=length, stride=stride, burn_in=burn_in)
    made, stored, _ = fill(history, made)
    if not stored:
        return
    # Of equal priorities each is drawn once in as many draws as there are.
    batch = made.sample(1, len(priorities(made)))
    drawn, times = np.unique(numbers(batch)[batch.learned], return_counts=True)
    assert drawn.tolist() == sorted(stored)
    assert set(times.tolist()) == {length // stride}


def test_there_is_room_for_any_number_of_sequences():
    world, made = World(1), buffer(60, length=6, stride=1, eta=0.0)
    for _ in range(5):
        rows = world.rows([["end"]] * 30)
        made.push({**rows, "priority": np.arange(30, dtype=np.float32)})
    found = priorities(made)
    assert len(found) == 60 * 6
    assert set(found) == {(1000 * episode, count) for episode in range(91, 151) for count in range(1, 7)}
    assert [found[1000 * episode, 3] for episode in range(91, 151)] == pytest.approx([*range(30)] * 2, abs=1e-5)
    copied = buffer(60, length=6, stride=1, eta=0.0)
    copied.load_state_dict(copy.deepcopy(made.state_dict()))
    assert priorities(copied) == found
    made.sample(1, 8)


def test_weights_by_hand():
    made = buffer(length=1, beta=0.5, beta_steps=2)
    made.push({**World(1).rows([["go"], ["go"]]), "priority": np.array([1.0, 4.0], np.float32)})
    batch = made.sample(3, 5)
    for k, beta in enumerate((0.5, 0.75, 1.0)):
        expected = np.where(numbers(batch)[k, 0] == 1000, 1.0, 4.0**-beta)
        np.testing.assert_allclose(batch.weight[k], expected, rtol=1e-5)


def expected_priorities(stored, episodes, length, stride, eta):
    """Those of all sequences, by first row and number of rows: errors are the ages of rows."""
    found = {}
    for rows in (episode["rows"] for episode in episodes):
        for start in range(stride - length, len(rows), stride):
            first, count = max(start, 0), min(start + length, length)
            if rows[first] in stored:
                ages = [number % 1000 for number in rows[first : first + count]]
                found[rows[first], count] = eta * max(ages) + (1.0 - eta) * np.mean(ages)
    return found


@settings(deadline=None, derandomize=True, max_examples=100)
@given(history=histories(), parts=st.integers(1, 3), stride=st.integers(1, 3), reload_at=st.integers(0, 7))
def test_all_sequences_have_the_priorities_of_their_rows_also_after_a_resume(history, parts, stride, reload_at):
    envs, capacity, rollouts = history
    length = parts * stride
    options = {"length": length, "stride": stride, "eta": 0.75, "burn_in": min(2, capacity - length)}
    made, other = buffer(capacity, **options), None
    world, pushed = World(envs), []
    for k, rollout in enumerate(rollouts):
        rows = world.rows(rollout)
        pushed += rows["number"].astype(int).tolist()
        for each in [made] if other is None else [made, other]:
            each.push({**rows, "priority": rows["age"].astype(np.float32)})
        if k == reload_at:
            other = buffer(capacity, **options, seed=9)
            other.load_state_dict(copy.deepcopy(made.state_dict()))
    stored = pushed[-capacity:]
    expected = expected_priorities(stored, world.episodes, length, options["stride"], 0.75)
    assert priorities(made) == pytest.approx(expected, abs=1e-4)
    if other is not None and stored:
        mine, theirs = made.sample(2, 8), other.sample(2, 8)
        for name in ("index", "filled", "learned", "weight"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
        assert set(numbers(mine)[:, options["burn_in"]].ravel()) <= {first for first, _ in expected}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="both together at most the capacity of 5 rows, got length=4, burn_in=2"):
        buffer(5, length=4, burn_in=2)
    for stride, fitting in ((9, 6), (4, 3), (5, 6), (0, 1)):
        with pytest.raises(ConfigError, match=f"a stride that divides length=6, got {stride}: .*; use {fitting}"):
            buffer(length=6, stride=stride)
    with pytest.raises(ConfigError, match="sample from an empty buffer"):
        buffer().sample(1, 1)
