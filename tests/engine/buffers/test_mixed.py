"""Minibatches from several buffers, and a sample of all rows ever pushed."""

import copy
import itertools

import numpy as np
import pytest
from buffer_kit import FIELDS, contents, evenly, numbers, rows, saved_twice
from fakes import refuses

from minding.engine.buffers import MixedBuffer, ReservoirBuffer, device_tables
from minding.engine.errors import CheckpointError, ConfigError, NonFiniteError
from minding.engine.seeding import generator_state


def mixed(pushed=(5, 3), parts=((4, 0.75), (6, 0.25)), seed=0):
    """Rows from 0 on in the first part, and from 100 on in the second."""
    made = MixedBuffer(parts, FIELDS, seed=seed)
    for number, (part, count) in enumerate(zip(made.parts, pushed)):
        for row in range(count):
            part.push(rows(100 * number + row))
    return made


def test_every_minibatch_has_its_share_of_each_part():
    batch = mixed().sample(500, 16)
    assert (batch.index.shape, batch.index.dtype) == ((500, 16), np.int32)
    found = numbers(batch)
    # The first part has overwritten its oldest row.
    for sampled, held in ((found[:, :12], [1, 2, 3, 4]), (found[:, 12:], [100, 101, 102])):
        numbered, counts = np.unique(sampled, return_counts=True)
        assert numbered.tolist() == held
        assert evenly(counts)


def test_learning_waits_for_each_part():
    made = mixed()
    first, second = made.parts
    assert (len(first), first.capacity, len(second), second.capacity) == (4, 4, 3, 6)
    assert (made.capacity, made.fields, second.fields) == (10, FIELDS, FIELDS)
    assert set(numbers(second.sample(20, 4)).ravel()) == {100, 101, 102}
    assert second.ring.read("number", np.arange(3)).tolist() == [100, 101, 102]
    lengths = [len(mixed(pushed)) for pushed in ((0, 0), (4, 0), (2, 3), (4, 5), (3, 6), (9, 6))]
    assert lengths == [0, 0, 2, 5, 3, 10]


def test_each_part_restores_its_rows_and_the_random_stream():
    made = mixed()
    made.sample(3, 8)
    other = mixed(pushed=(0, 0), seed=9)
    for part, saved in zip(other.parts, made.parts):
        part.load_state_dict(copy.deepcopy(saved.state_dict()))
    assert np.array_equal(numbers(other.sample(4, 8)), numbers(made.sample(4, 8)))
    # What is not saved, such as recorded data, is pushed anew.
    again = mixed(pushed=(0, 3), seed=9)
    again.parts[0].load_state_dict(copy.deepcopy(made.parts[0].state_dict()))
    assert np.array_equal(numbers(again.sample(4, 8)), numbers(made.sample(4, 8)))


def test_parts_and_minibatches_that_do_not_fit_are_refused():
    refuses(
        ConfigError,
        ("shares", lambda: MixedBuffer([], FIELDS)),
        ("shares", lambda: MixedBuffer([(4, 0.5), (4, 0.4)], FIELDS)),
        ("shares", lambda: MixedBuffer([(4, 1.5), (4, -0.5)], FIELDS)),
        ("capacities", lambda: MixedBuffer([(4, 0.5), (0, 0.5)], FIELDS)),
        ("divided", lambda: mixed().sample(1, 10)),
        ("empty", lambda: mixed((3, 0)).sample(1, 4)),
    )


# Reservoir


def buffer(capacity=4, seed=0, pushes=()):
    made = ReservoirBuffer(capacity, FIELDS, seed=seed)
    push(made, 0, pushes)
    return made


def push(made, start, counts):
    """Pushes so many rows at a time, numbered from `start`."""
    for count in counts:
        made.push(rows(*range(start, start + count)))
        start += count


def held(made):
    """The numbers of the held rows, by place."""
    return contents(made.rows, np.arange(len(made)))


PUSHES = {"one by one": [1] * 5, "several at a time": [1, 3, 1], "more at a time than it holds": [5]}


@pytest.mark.parametrize("pushes", PUSHES.values(), ids=PUSHES)
def test_every_set_of_rows_is_equally_likely_to_be_held(pushes):
    draws, sets = 1500, list(itertools.combinations(range(5), 2))
    counts, made = dict.fromkeys(sets, 0), buffer(capacity=2)
    start = made.state_dict()
    for seed in range(draws):
        # The same tables each time, which is quicker than new ones.
        fresh = generator_state(np.random.default_rng(seed))
        made.load_state_dict({**start, "rng": {"drawn": fresh, "kept": fresh}})
        push(made, 0, pushes)
        counts[tuple(sorted(held(made)))] += 1
    assert evenly(list(counts.values()))


def test_held_rows_are_sampled_evenly():
    made = buffer(capacity=5, pushes=(3,))
    batch = made.sample(500, 12)
    assert (batch.index.shape, batch.index.dtype) == ((500, 12), np.int32)
    assert batch.tables is made.rows.tables
    counts = np.bincount(batch.index.reshape(-1), minlength=5)
    assert counts[3:].tolist() == [0, 0]
    assert evenly(counts[:3])


def test_the_seed_decides_which_rows_are_held_and_samples_do_not():
    found = []
    for seed, draws in ((0, 0), (0, 3), (1, 0)):
        made = buffer(seed=seed, pushes=(10,))
        made.sample(draws, 5)
        push(made, 10, (20,))
        found.append(held(made))
    assert found[0] == found[1] != found[2]


def test_a_checkpoint_restores_it_and_links_unchanged_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(device_tables, "BLOCK_BYTES", 8)  # Two rows of the numbers, four of the images.
    made = buffer(capacity=8, pushes=(8,))
    before = held(made)
    state, linked = saved_twice(tmp_path, made, lambda: push(made, 8, (4,)))
    kept = [a == b for a, b in zip(before, held(made))]
    assert linked == [all(kept[i : i + n]) for n in (2, 4) for i in range(0, 8, n)]
    assert set(linked) == {True, False}
    other = buffer(capacity=8, seed=7)
    other.load_state_dict(state)
    assert held(other) == held(made)
    for each in (made, other):
        push(each, 12, (5, 30))
    assert held(other) == held(made)
    assert np.array_equal(other.sample(2, 4).index, made.sample(2, 4).index)


def test_what_does_not_fit_is_refused():
    refuses(ConfigError, ("empty", lambda: buffer().sample(1, 1)), ("1 row", lambda: buffer(capacity=0)))
    refuses(CheckpointError, ("4 rows", lambda: buffer(capacity=5).load_state_dict(buffer().state_dict())))
    made, bad = buffer(pushes=(2,)), {**rows(3, 4), "number": np.array([3, np.nan], np.float32)}
    refuses(NonFiniteError, ("'number' of row 1", lambda: made.push(bad)))
    assert held(made) == [0, 1]
