"""Uniform replay."""

import subprocess
import sys

import numpy as np
import pytest

from minding.engine.buffers import UniformBuffer
from minding.engine.buffers import saved as storage
from minding.engine.checkpoint import load_checkpoint, save_checkpoint
from minding.engine.data.batch import Field
from minding.engine.errors import ConfigError

FIELDS = {"number": Field()}


def buffer(capacity=8, seed=0, held=5):
    made = UniformBuffer(capacity, FIELDS, seed=seed)
    if held:
        made.push({"number": np.arange(held, dtype=np.float32)})
    return made


def test_only_rows_that_hold_something_are_drawn_each_about_as_often():
    index = buffer().sample(500, 20).index
    assert (index.shape, index.dtype) == ((500, 20), np.int32)
    counts = np.bincount(index.reshape(-1), minlength=8)
    assert counts[5:].tolist() == [0, 0, 0]
    # 4 degrees of freedom: chi-square is below 18.5 in 99.9 % of cases.
    assert ((counts[:5] - 2000) ** 2 / 2000).sum() < 18.5


def test_a_batch_holds_the_buffers_own_tables():
    made = buffer()
    batch = made.sample(2, 3)
    assert batch.tables is made.ring.tables
    assert np.array_equal(batch.layout.read(batch.tables.host, "number", batch.index), batch.index)


def test_the_seed_decides_the_draws():
    draws = [buffer(seed=seed).sample(3, 4).index.tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_draws_go_on_where_the_saved_state_left_them():
    made = buffer()
    made.sample(1, 4)
    other = buffer(seed=7, held=0)
    other.load_state_dict(made.state_dict())
    assert len(other) == 5
    assert np.array_equal(other.sample(2, 4).index, made.sample(2, 4).index)


def test_an_empty_buffer_says_what_to_do():
    with pytest.raises(ConfigError, match="sample from an empty buffer: push transitions first"):
        buffer(held=0).sample(1, 1)


def test_what_it_holds_is_what_it_was_made_for():
    made = buffer()
    assert (made.capacity, made.fields, len(made)) == (8, FIELDS, 5)


def test_a_checkpoint_brings_it_back_and_the_next_one_links_what_did_not_change(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "BLOCK_BYTES", 8)  # Two rows of one float32.
    made = buffer()
    save_checkpoint(tmp_path / "iter_1", made.state_dict(), {})
    made.push({"number": np.array([5, 6], np.float32)})
    save_checkpoint(tmp_path / "iter_2", made.state_dict(), {}, previous=tmp_path / "iter_1")
    pairs = zip(sorted((tmp_path / "iter_1").glob("block-*")), sorted((tmp_path / "iter_2").glob("block-*")))
    assert [one.samefile(two) for one, two in pairs] == [True, True, False]
    other = buffer(seed=7, held=0)
    other.load_state_dict(load_checkpoint(tmp_path / "iter_2")[0])
    assert other.ring.read("number", np.arange(7)).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert np.array_equal(other.sample(2, 4).index, made.sample(2, 4).index)


PEAK = """
import re
from minding.engine.buffers import UniformBuffer
from minding.engine.data.batch import Field

def peak():
    # What `getrusage` says begins with the memory of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

UniformBuffer(10, {"row": Field((8,))})
before, rows = peak(), 5_000_000
buffer = UniformBuffer(rows, {"row": Field((8,))})
print((peak() - before) / (rows * 8 * 4))
"""


@pytest.mark.slow
def test_tables_take_their_own_size_when_they_are_made_and_not_twice_that():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert 0.8 < float(done.stdout.split()[-1]) < 1.3
