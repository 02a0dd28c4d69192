"""The ring of rows in device memory, against a plain list."""

import numpy as np
import pytest
from buffer_kit import FIELDS, contents, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from minding.engine.buffers import Ring, device_tables
from minding.engine.data.batch import RowLayout
from minding.engine.process.runtime import ms, nn, ops, to_device


def ring(capacity=5, fields=FIELDS):
    return Ring(capacity, RowLayout(fields))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(capacity=st.integers(1, 7), actions=st.lists(st.one_of(st.integers(0, 7), st.just("reload")), max_size=12))
def test_it_holds_the_same_as_a_list_of_the_last_rows(capacity, actions):
    buffer, model, number = ring(capacity), {}, 0
    for action in actions:
        if action == "reload":
            fresh = ring(capacity)
            fresh.load_state_dict(buffer.state_dict())
            buffer = fresh
        elif action <= capacity:
            written = buffer.push(rows(*range(number, number + action)))
            for row in range(action):
                assert written[row] == (number + row) % capacity
                model[(number + row) % capacity] = number + row
            number += action
        assert contents(buffer) == [model[row] for row in sorted(model)]
        assert len(buffer) == len(model) == min(number, capacity)


class Gather(nn.Cell):
    def __init__(self, buffer):
        super().__init__()
        self.numbers, self.images = buffer.tables.parameters

    @ms.jit
    def construct(self, index):
        return ops.gather(self.numbers, index, 0), ops.gather(self.images, index, 0)


def test_a_compiled_graph_sees_every_push_and_every_load():
    buffer = ring(4)
    gather = Gather(buffer)
    index = to_device(np.array([3, 0, 0], np.int32))

    def seen():
        numbers, images = gather(index)
        return numbers.asnumpy()[:, 0].tolist(), images.asnumpy()[:, 1].tolist()

    assert seen() == ([0, 0, 0], [0, 0, 0])
    buffer.push(rows(1, 2, 3, 4))
    assert seen() == ([4, 1, 1], [4, 1, 1])
    buffer.push(rows(300))
    assert seen() == ([4, 300, 300], [4, 44, 44])
    other = ring(4)
    other.push(rows(5, 6, 7, 8))
    buffer.load_state_dict(other.state_dict())
    assert seen() == ([8, 5, 5], [8, 5, 5])


def saved_versions(buffer):
    return list(buffer.state_dict()["tables"]["0"].versions)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(capacity=st.integers(1, 9), pushes=st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_a_blocks_version_changes_if_a_row_is_written(capacity, pushes):
    buffer, pushed = ring(capacity), 0
    with pytest.MonkeyPatch.context() as patch:
        # Rows of table 0 have one float32: two of them make a block.
        patch.setattr(device_tables, "BLOCK_BYTES", 8)
        for count in (min(count, capacity) for count in pushes):
            before = saved_versions(buffer)
            written = {int(row) // 2 for row in buffer.push(rows(*range(pushed, pushed + count)))}
            pushed += count
            after = saved_versions(buffer)
            changed = {k for k in range(len(after)) if k >= len(before) or before[k] != after[k]}
            assert changed == written


def test_a_loaded_ring_shares_no_version_with_its_source():
    buffer, other = ring(), ring()
    buffer.push(rows(1, 2, 3))
    other.load_state_dict(buffer.state_dict())
    assert (len(other), other.cursor) == (3, 3)
    assert set(saved_versions(buffer)).isdisjoint(saved_versions(other))
    # A state copies no rows.
    for table, saved in zip(buffer.tables.host, buffer.state_dict()["tables"].values()):
        assert np.shares_memory(table, saved.array)
        assert len(saved.array) == 3


def test_too_many_rows_are_refused_before_anything_is_kept():
    with pytest.raises(MemoryError, match=r"1,000,000,000,000 rows of \d+ bytes take .* rows fit"):
        Ring(10**12, RowLayout(FIELDS), ordered=True)
