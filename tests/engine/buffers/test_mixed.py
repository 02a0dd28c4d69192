"""Minibatches from several buffers."""

import copy

import numpy as np
from buffer_kit import FIELDS, evenly, numbers, rows

from minding.engine.buffers import MixedBuffer


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
