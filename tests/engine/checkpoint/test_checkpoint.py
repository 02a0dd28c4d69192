"""One checkpoint folder: round trip, damage, what can be saved; and large arrays in blocks."""

import os
import shutil

import numpy as np
import pytest
from fakes import refuses
from fresh import run_fresh

from minding.engine.checkpoint import BlockArray, load_checkpoint, save_checkpoint, verify_checkpoint
from minding.engine.errors import CheckpointError

STATE = {
    "arrays": {
        "zero_d": np.array(1.5, np.float32),
        "empty": np.zeros((0, 3), np.float64),
        "bools": np.array([True, False]),
        "bytes": np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
        "ints": np.array([-(2**62), 2**62]),
        "doubles": np.array([1 / 3, np.nan, np.inf, -0.0]),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    },
    "values": {"int": 2**100, "float": 0.1, "none": None, "bool": True, "text": "\u00e4/$", "nothing": {}},
    "list": [1, [2.5, np.array([7])], "x", {"a": np.array(3)}],
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "iter_5"
    save_checkpoint(path, STATE, {"train_iter": 5})
    return path


def file_of(folder, kind):
    """The one file of a checkpoint whose name begins with `kind`."""
    (path,) = folder.glob(f"{kind}*")
    return path


def assert_same(loaded, original):
    assert type(loaded) is type(original)
    if isinstance(original, dict):
        assert loaded.keys() == original.keys()
        for key in original:
            assert_same(loaded[key], original[key])
    elif isinstance(original, list):
        assert len(loaded) == len(original)
        for pair in zip(loaded, original):
            assert_same(*pair)
    elif isinstance(original, np.ndarray):
        assert (loaded.dtype, loaded.shape) == (original.dtype, original.shape)
        assert loaded.tobytes() == original.tobytes()
    else:
        assert loaded == original


def test_a_nested_state_round_trips_bit_by_bit(saved):
    state, manifest = load_checkpoint(saved)
    assert_same(state, STATE)
    assert (manifest["train_iter"], manifest["schema"]) == (5, 3)
    # Loaded arrays can be written to.
    state["arrays"]["zero_d"][...] = 2.0
    state["arrays"]["ints"][0] = 1


def test_numbers_tuples_and_arrays_keep_their_values(tmp_path):
    save_checkpoint(tmp_path / "c", {"a": np.int64(3), "b": (1, np.bool_(True)), "c": np.array([1, 2], ">i4")}, {})
    found = load_checkpoint(tmp_path / "c")[0]
    assert found.pop("c").tolist() == [1, 2]
    assert_same(found, {"a": 3, "b": [1, True]})


FILES = ("manifest", "arrays", "state")


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("read", [load_checkpoint, verify_checkpoint])
def test_a_truncated_file_is_an_error_that_names_the_checkpoint(saved, kind, read):
    path = file_of(saved, kind)
    data = path.read_bytes()
    for keep in (0.0, 0.5, 0.999):
        path.write_bytes(data[: int(len(data) * keep)])
        refuses(CheckpointError, ("iter_5", lambda: read(saved)))


@pytest.mark.parametrize("kind", FILES)
def test_one_flipped_bit_anywhere_is_an_error(saved, kind):
    path = file_of(saved, kind)
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_checkpoint(saved)


NOT_PICKLED = """
import sys, pickle, _pickle
def refuse(*a, **k): raise SystemExit('unpickled')
for module in (pickle, _pickle):
    module.load = module.loads = module.Unpickler = refuse
from pathlib import Path
from minding.engine.checkpoint import load_checkpoint
state, _ = load_checkpoint(Path(sys.argv[1]))
print(state['arrays']['zero_d'].item(), 'mindspore' in sys.modules)
"""


def test_loading_neither_unpickles_nor_loads_mindspore(saved):
    # Unpickling runs code from the file: any use of it fails.
    assert run_fresh(NOT_PICKLED, saved) == ["1.5 False"]


def test_a_checkpoint_of_the_same_name_is_replaced_whole(saved):
    before = {path.name for path in saved.iterdir()}
    (saved / "note.txt").write_text("the user's own")
    save_checkpoint(saved, {"a": np.ones(2)}, {"train_iter": 6})
    state, manifest = load_checkpoint(saved)
    assert_same(state, {"a": np.ones(2)})
    assert manifest["train_iter"] == 6
    after = {path.name for path in saved.iterdir()}
    assert before & after == {"manifest.json"}
    assert after == {"manifest.json", "note.txt", *manifest["files"]}


# Large arrays: blocks that have not changed are linked


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


def test_only_changed_blocks_are_written_and_links_stay(tmp_path):
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
