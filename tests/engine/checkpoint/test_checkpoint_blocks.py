"""Large arrays in checkpoints: blocks that have not changed are linked, and every checkpoint is whole by itself."""

import os
import shutil

import numpy as np
import pytest
from fakes import refuses

from minding.engine.checkpoint import BlockArray, load_checkpoint, save_checkpoint, verify_checkpoint
from minding.engine.errors import CheckpointError, ShapeError


def save(folder, rows, versions, previous=None, name="iter_1"):
    """Saves rows in blocks of 4."""
    save_checkpoint(folder / name, {"ring": {"rows": BlockArray(rows, 4, versions)}}, {}, previous=previous)
    return folder / name


def loaded(path):
    return load_checkpoint(path)[0]["ring"]["rows"]


def blocks(path):
    """The block files in order."""
    return sorted(path.glob("block-*"))


def linked(path, other):
    """For each block of `path`, whether it is the same file as that of `other`."""
    return [one.samefile(two) for one, two in zip(blocks(path), blocks(other))]


ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


@pytest.mark.parametrize(
    "rows",
    [ROWS, ROWS[:8], ROWS[:0], ROWS.astype(np.uint8)[:, :0], ROWS[::-1], np.arange(5)],
    ids=["partial last block", "whole blocks", "no rows", "no columns", "a view", "one axis"],
)
def test_it_comes_back_as_one_plain_array(tmp_path, rows):
    found = loaded(save(tmp_path, rows, [1] * -(-len(rows) // 4)))
    assert (type(found), found.dtype, found.shape) == (np.ndarray, rows.dtype, rows.shape)
    assert np.array_equal(found, rows)
    found[...] = 0


def test_only_blocks_of_another_version_are_written_and_links_outlive_their_source(tmp_path):
    first = save(tmp_path, ROWS, [1, 1, 1])
    changed = ROWS.copy()
    changed[5] = -1
    second = save(tmp_path, changed, [1, 2, 1], first, "iter_2")
    assert linked(second, first) == [True, False, True]
    assert np.array_equal(loaded(first), ROWS)
    assert np.array_equal(loaded(second), changed)
    first = save(tmp_path, ROWS, [1, 1, 1])
    second = save(tmp_path, ROWS, [1, 1, 1], first, "iter_2")
    shutil.rmtree(first)
    assert np.array_equal(loaded(second), ROWS)


def test_a_block_that_grew_is_written_whatever_its_version(tmp_path):
    first = save(tmp_path, ROWS[:6], [1, 1])
    second = save(tmp_path, ROWS[:7], [1, 1], first, "iter_2")
    assert linked(second, first) == [True, False]
    assert np.array_equal(loaded(second), ROWS[:7])


def test_a_checkpoint_that_links_to_the_one_it_replaces_is_whole(tmp_path):
    first = save(tmp_path, ROWS, [1, 1, 1])
    changed = np.concatenate([ROWS[:8], -ROWS[8:]])
    save(tmp_path, changed, [1, 1, 2], first)
    assert np.array_equal(loaded(first), changed)
    assert len(blocks(first)) == 3


@pytest.mark.parametrize("damage", ["truncated", "missing", "no manifest"])
def test_what_is_no_longer_there_to_link_is_written(tmp_path, damage):
    first = save(tmp_path, ROWS, [1, 1, 1])
    if damage == "truncated":
        os.truncate(blocks(first)[1], 10)
    else:
        (blocks(first)[1] if damage == "missing" else first / "manifest.json").unlink()
    assert np.array_equal(loaded(save(tmp_path, ROWS, [1, 1, 1], first, "iter_2")), ROWS)


def test_where_links_are_impossible_everything_is_written(tmp_path, monkeypatch):
    def refuse(source, target, **places):
        raise OSError(1, "Operation not permitted")

    first = save(tmp_path, ROWS, [1, 1, 1])
    monkeypatch.setattr(os, "link", refuse)
    second = save(tmp_path, ROWS, [1, 1, 1], first, "iter_2")
    assert linked(second, first) == [False, False, False]
    assert np.array_equal(loaded(second), ROWS)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_in_any_block_is_found(tmp_path, number):
    path = save(tmp_path, ROWS, [1, 1, 1])
    data = bytearray(blocks(path)[number].read_bytes())
    data[-1] ^= 1
    blocks(path)[number].write_bytes(data)
    for read in (verify_checkpoint, load_checkpoint):
        with pytest.raises(CheckpointError, match=f"block-{number}-.* SHA-256"):
            read(path)


def test_what_does_not_fit_is_refused():
    refuses(
        ShapeError,
        ("3 versions, got 2", lambda: BlockArray(ROWS, 4, [1, 2])),
        ("got shape ()", lambda: BlockArray(np.array(1.0), 4, [1])),
        ("blocks of 0", lambda: BlockArray(ROWS, 0, [])),
    )
