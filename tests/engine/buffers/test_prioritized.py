"""Prioritized replay: draws in proportion, weights by hand, exact resume."""

import copy

import numpy as np
import pytest

from minding.engine.buffers import PrioritizedBuffer
from minding.engine.buffers.priorities import UNKNOWN, Priorities
from minding.engine.buffers.sum_tree import SumTree
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError, NonFiniteError


def test_a_sum_tree_finds_the_row_whose_part_of_the_sum_it_is():
    tree = SumTree(5)
    tree.write(np.array([0, 1, 3, 4, 3]), np.array([1.0, 2.0, 9.0, 0.5, 4.0]))
    assert tree.total == 7.5
    assert tree.read(np.arange(5)).tolist() == [1.0, 2.0, 0.0, 4.0, 0.5]
    mass = np.array([[0.0, 0.99, 1.0], [2.99, 3.0, 6.99], [7.0, 7.49, 2.0]])
    assert tree.find(mass).tolist() == [[0, 0, 1], [1, 3, 3], [4, 4, 1]]


@pytest.mark.parametrize(("capacity", "blocks"), [(5000, 32), (3_000_000, 4096)])
def test_a_tree_of_many_blocks_finds_what_the_running_sum_finds(capacity, blocks):
    rng = np.random.default_rng(0)
    # Whole numbers: every sum is exact.
    priorities = rng.integers(1, 100, capacity).astype(float)
    tree = SumTree(capacity)
    assert len(tree._roots) == blocks
    tree.write(np.arange(capacity), np.ones(capacity))
    rows = rng.permutation(capacity)
    tree.write(rows, priorities[rows])
    sums = np.cumsum(priorities)
    assert tree.total == sums[-1]
    mass = np.concatenate([sums[:-1], sums - 1, sums - 0.5, rng.random(3000) * sums[-1]])
    np.testing.assert_array_equal(tree.find(mass), np.searchsorted(sums, mass, side="right"))


def test_a_row_without_a_priority_is_never_drawn_wherever_rounding_leads():
    made = Priorities(8, alpha=1.0, beta=0.0, beta_steps=1)
    made.begin(np.array([1, 4]), np.array([3.0, UNKNOWN]))
    made._tree.find = lambda mass: np.array([[0, 1, 3, 4, 7]])
    assert made.draw(1, 5, np.random.default_rng(0))[0].tolist() == [[1, 1, 1, 4, 4]]


def buffer(capacity=4, rows=4, **options):
    made = PrioritizedBuffer(capacity, {"number": Field()}, **options)
    made.push({"number": np.arange(rows, dtype=np.float32)})
    return made


def of(*rows):
    """A batch of one minibatch with these rows."""
    return IndexedBatch(RowLayout({"number": Field()}), None, np.array([rows], np.int32))


def test_rows_are_drawn_in_proportion_to_their_priority_one_from_each_part():
    made = buffer(alpha=1.0)
    made.update(of(0, 1, 2, 3), np.array([[1.0, 2.0, 3.0, 4.0]], np.float32))
    index = made.sample(1000, 10).index
    # Parts of a tenth: a row of priority p is drawn p times, from p parts, in every minibatch.
    for row in range(4):
        assert abs(np.mean((index == row).sum(axis=1)) - (row + 1)) < 0.01
    assert np.ptp((index == 3).sum(axis=1)) <= 1


def test_weights_by_hand_and_their_exponent_rises_to_one():
    made = buffer(alpha=1.0, beta=0.5, beta_steps=2)
    made.update(of(0, 1, 2, 3), np.array([[1.0, 4.0, 4.0, 16.0]], np.float32))
    batch = made.sample(3, 400)
    for k, beta in enumerate((0.5, 0.75, 1.0)):
        expected = np.array([1.0, 4.0, 4.0, 16.0])[batch.index[k]] ** -beta
        np.testing.assert_allclose(batch.weight[k], expected, rtol=1e-5)
    assert made.beta == 1.0


def test_new_rows_have_the_highest_priority_and_overwrite_the_oldest():
    made = buffer(alpha=1.0)
    made.update(of(0, 1, 2, 3), np.array([[0.0, 0.0, 0.0, 1e6]], np.float32))
    made.push({"number": np.array([9.0], np.float32)})
    drawn = np.bincount(made.sample(100, 10).index.ravel(), minlength=4)
    assert drawn[1] == drawn[2] == 0
    assert drawn[0] == pytest.approx(500, abs=100)


def test_rows_that_come_with_priorities_have_these():
    made = buffer(8, 2, alpha=0.5)
    made.push({"number": np.arange(2.0, 5.0, dtype=np.float32), "priority": np.array([9.0, 0.25, 0.0], np.float32)})
    # The others have the highest one, which those that came later raised.
    made.push({"number": np.array([5.0], np.float32)})
    assert made.state_dict()["priorities"] == pytest.approx([1.0, 1.0, 3.0, 0.5, 0.001, 3.0], rel=1e-4)


def test_a_restored_buffer_draws_the_same():
    made, rng = buffer(8, 6, seed=3), np.random.default_rng(0)
    for _ in range(3):
        made.update(made.sample(2, 4), rng.random((2, 4)).astype(np.float32))
    state = copy.deepcopy(made.state_dict())
    other = PrioritizedBuffer(8, {"number": Field()}, seed=9)
    other.load_state_dict(state)
    a, b = made.sample(3, 4), other.sample(3, 4)
    assert a.index.tobytes() == b.index.tobytes()
    assert a.weight.tobytes() == b.weight.tobytes()


def test_what_cannot_be_drawn_or_written_is_an_error():
    with pytest.raises(ConfigError, match="empty buffer"):
        PrioritizedBuffer(4, {"number": Field()}).sample(1, 1)
    made = buffer()
    with pytest.raises(NonFiniteError, match="priority of row 2 is NaN or infinite"):
        made.update(of(1, 2), np.array([[1.0, np.nan]], np.float32))
    with pytest.raises(ConfigError, match=r"priority of row 1 is -2\.0: expected the size of an error, at least 0"):
        made.update(of(1, 2), np.array([[-2.0, 1.0]], np.float32))
    with pytest.raises(NonFiniteError, match="priority of row 0 is NaN or infinite"):
        made.push({"number": np.zeros(1, np.float32), "priority": np.array([np.inf], np.float32)})


@pytest.mark.parametrize("wrong", [{"alpha": 2.0}, {"alpha": float("nan")}, {"beta": -0.1}, {"beta_steps": 0}])
def test_shares_and_steps_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"draws by priority: expected {next(iter(wrong))}"):
        Priorities(4, **{"alpha": 0.6, "beta": 0.4, "beta_steps": 10, **wrong})
