"""One checkpoint folder: round trip, damage, and what can be saved."""

import functools

import numpy as np
import pytest
from fakes import refuses
from fresh import run_fresh

from minding.engine.checkpoint import (
    load_checkpoint,
    read_manifest,
    save_checkpoint,
    store,
    verify_checkpoint,
)
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


def test_numpy_numbers_become_plain_ones_tuples_lists_and_arrays_keep_their_numbers(tmp_path):
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


def test_another_white_space_in_the_manifest_is_damage_too(saved):
    path = saved / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b", ", b",\t", 1))
    with pytest.raises(CheckpointError, match="damaged manifest"):
        read_manifest(saved)


@pytest.mark.parametrize("kind", FILES)
def test_a_missing_file_is_an_error(saved, kind):
    file_of(saved, kind).unlink()
    with pytest.raises(CheckpointError):
        load_checkpoint(saved)


def test_another_schema_is_an_error_that_says_which(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SCHEMA", 99)
    save_checkpoint(tmp_path / "c", STATE, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="schema 99; this version reads schema 3"):
        read_manifest(tmp_path / "c")


UNSAVED = [
    ({"a": {"b": object()}}, "state/a/b: a object"),
    ({"a": np.array(["x"])}, "state/a: a <U1"),
    ({"a": np.array([None])}, "state/a: a object array"),
    ({"a": np.zeros(1, np.longdouble)}, "state/a: a float128"),
    ({"a": {1: 2}}, "the key 1"),
    ({"$blocks": 1}, "the key '$blocks'"),
    ({"a/b": np.zeros(1), "a": {"b": np.ones(1)}}, "'/a/b'"),
]


def test_what_cannot_be_saved_is_named_and_leaves_nothing(tmp_path):
    save = lambda state: save_checkpoint(tmp_path / "c", state, {})  # noqa: E731
    refuses(CheckpointError, *((word, functools.partial(save, state)) for state, word in UNSAVED))
    assert list(tmp_path.iterdir()) == []


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


def test_a_checkpoint_of_the_same_name_is_replaced_and_nothing_of_it_stays(saved):
    before = {path.name for path in saved.iterdir()}
    (saved / "note.txt").write_text("the user's own")
    save_checkpoint(saved, {"a": np.ones(2)}, {"train_iter": 6})
    state, manifest = load_checkpoint(saved)
    assert_same(state, {"a": np.ones(2)})
    assert manifest["train_iter"] == 6
    after = {path.name for path in saved.iterdir()}
    assert before & after == {"manifest.json"}
    assert after == {"manifest.json", "note.txt", *manifest["files"]}
