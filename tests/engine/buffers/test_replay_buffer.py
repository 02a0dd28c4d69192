"""Replay of single rows: uniformly, by priority, with weights worked out by hand, and resumed exactly."""

import copy

import numpy as np
import pytest
from buffer_kit import FIELDS, contents, evenly, rows, saved_twice
from fresh import run_fresh

from minding.engine.buffers import Priority, ReplayBuffer, device_tables
from minding.engine.buffers import priorities as priorities_module
from minding.engine.buffers.priorities import UNKNOWN, Priorities, SumTree
from minding.engine.data.batch import IndexedBatch, RowLayout


def buffer(capacity=8, held=5, seed=0, **priority):
    made = ReplayBuffer(capacity, FIELDS, priority=Priority(**priority) if priority else None, seed=seed)
    made.push(rows(*range(held)))
    return made


def test_rows_held_are_sampled_equally_as_the_seed_decides():
    made = buffer()
    batch = made.sample(500, 20)
    assert (batch.index.shape, batch.index.dtype, batch.tables) == ((500, 20), np.int32, made.ring.tables)
    counts = np.bincount(batch.index.reshape(-1), minlength=8)
    assert counts[5:].tolist() == [0, 0, 0]
    assert evenly(counts[:5])
    assert (made.capacity, made.fields, len(made)) == (8, FIELDS, 5)

    samples = [buffer(seed=seed).sample(3, 4).index.tolist() for seed in (0, 0, 1)]
    assert samples[0] == samples[1] != samples[2]


def test_a_checkpoint_restores_it_and_links_unchanged_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(device_tables, "BLOCK_BYTES", 8)  # Two rows of the numbers, four of the images.
    made, other = buffer(), buffer(held=0, seed=7)
    made.sample(1, 4)
    state, linked = saved_twice(tmp_path, made, lambda: made.push(rows(5)))
    # Of the blocks of numbers and of images, those with row 5 are new.
    assert linked == [True, True, False, True, False]
    other.load_state_dict(state)
    assert contents(other.ring) == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(other.sample(2, 4).index, made.sample(2, 4).index)


PEAK = """
import re
from minding.engine.buffers import ReplayBuffer
from minding.engine.data.batch import Field

def peak():
    # What `getrusage` says begins with the memory of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

ReplayBuffer(10, {"row": Field((8,))})
before, rows = peak(), 5_000_000
buffer = ReplayBuffer(rows, {"row": Field((8,))})
print((peak() - before) / (rows * 8 * 4))
"""


@pytest.mark.slow
def test_tables_are_made_without_a_second_copy():
    assert 0.8 < float(run_fresh(PEAK, quiet=False)[-1]) < 1.3


# The sums


@pytest.mark.parametrize(("capacity", "most", "blocks"), [(5000, 4096, 32), (5000, 16, 16), (100_000, 4096, 512)])
def test_a_tree_of_many_blocks_finds_what_the_running_sum_finds(capacity, most, blocks, monkeypatch):
    monkeypatch.setattr(priorities_module, "ROOTS", most)
    rng = np.random.default_rng(0)
    # Whole numbers: every sum is exact.
    priorities = rng.integers(1, 100, capacity).astype(float)
    tree = SumTree(capacity)
    assert len(tree._roots) == blocks
    tree.write(np.arange(capacity), np.ones(capacity))
    order = rng.permutation(capacity)
    tree.write(order, priorities[order])
    sums = np.cumsum(priorities)
    assert tree.total == sums[-1]
    mass = np.concatenate([sums[:-1], sums - 1, sums - 0.5, rng.random(3000) * sums[-1]])
    np.testing.assert_array_equal(tree.find(mass), np.searchsorted(sums, mass, side="right"))


# Priorities


def of(*index):
    """A batch of one minibatch with these rows."""
    return IndexedBatch(RowLayout(FIELDS), None, np.array([index], np.int32))


def test_a_row_without_a_priority_is_never_sampled():
    made = Priorities(8, Priority(alpha=1.0, beta=0.0, beta_steps=1))
    made.begin(np.array([1, 4]), np.array([3.0, UNKNOWN]))
    made._tree.find = lambda mass: np.array([[0, 1, 3, 4, 7]])
    assert made.draw(1, 5, np.random.default_rng(0))[0].tolist() == [[1, 1, 1, 4, 4]]


def test_rows_are_sampled_in_proportion_to_their_priority():
    made = buffer(4, 4, alpha=1.0)
    made.update(of(0, 1, 2, 3), np.array([[1.0, 2.0, 3.0, 4.0]], np.float32))
    index = made.sample(1000, 10).index
    # Parts of a tenth: a row of priority p is sampled p times, from p parts, in every minibatch.
    for row in range(4):
        assert abs(np.mean((index == row).sum(axis=1)) - (row + 1)) < 0.01
    assert np.ptp((index == 3).sum(axis=1)) <= 1
    made = buffer(4, 4, alpha=1.0, beta=0.5, beta_steps=2)
    priority = np.array([1.0, 4.0, 4.0, 16.0], np.float32)
    made.update(of(0, 1, 2, 3), priority[None])
    first, last = made.sample(2, 400), made.sample(1, 400)
    for batch, k, beta in ((first, 0, 0.5), (first, 1, 0.75), (last, 0, 1.0)):
        np.testing.assert_allclose(batch.weight[k], priority[batch.index[k]] ** -beta, rtol=1e-5)
    assert (made.beta, made.minibatches) == (1.0, 3)


def test_rows_that_bring_priorities_have_these():
    made = buffer(8, 2, alpha=0.5)
    made.push(rows(2, 3, 4, priority=[9.0, 0.25, 0.0]))
    # The others have the highest one, which those that came later raised.
    made.push(rows(5))
    assert made.state_dict()["priorities"] == pytest.approx([1.0, 1.0, 3.0, 0.5, 0.001, 3.0], rel=1e-4)


def test_a_restored_buffer_samples_the_same():
    made, rng = buffer(8, 6, seed=3, alpha=0.6), np.random.default_rng(0)
    for _ in range(3):
        made.update(made.sample(2, 4), rng.random((2, 4)).astype(np.float32))
    other = buffer(8, 0, seed=9, alpha=0.6)
    other.load_state_dict(copy.deepcopy(made.state_dict()))
    one, two = made.sample(3, 4), other.sample(3, 4)
    assert (one.index.tobytes(), one.weight.tobytes()) == (two.index.tobytes(), two.weight.tobytes())
