"""Checkpoint folders: round trip, damage, and what can be saved."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minding.engine import checkpoint
from minding.engine.checkpoint import list_checkpoints, load_checkpoint, read_manifest, save_checkpoint
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
    assert (manifest["train_iter"], manifest["schema"]) == (5, 1)


def test_loaded_arrays_can_be_written_to(saved):
    state, _ = load_checkpoint(saved)
    state["arrays"]["zero_d"][...] = 2.0
    state["arrays"]["ints"][0] = 1


def test_a_state_without_arrays_round_trips(tmp_path):
    save_checkpoint(tmp_path / "c", {"a": 1}, {})
    assert load_checkpoint(tmp_path / "c")[0] == {"a": 1}


def test_numpy_numbers_become_plain_ones_and_tuples_lists(tmp_path):
    save_checkpoint(tmp_path / "c", {"a": np.int64(3), "b": (1, np.bool_(True))}, {})
    assert_same(load_checkpoint(tmp_path / "c")[0], {"a": 3, "b": [1, True]})


FILES = ("manifest.json", "arrays.safetensors", "state.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_an_error_that_names_the_checkpoint(saved, name, keep):
    data = (saved / name).read_bytes()
    (saved / name).write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(CheckpointError, match="iter_5"):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_anywhere_is_an_error(saved, name):
    data = bytearray((saved / name).read_bytes())
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        was, now = chr(data[position]), chr(damaged[position])
        if name == "manifest.json" and was.isspace() and now.isspace():
            continue  # Another kind of white space says the same.
        (saved / name).write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_checkpoint(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_an_error(saved, name):
    (saved / name).unlink()
    with pytest.raises(CheckpointError):
        load_checkpoint(saved)


def test_a_folder_that_is_none_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="no readable manifest"):
        load_checkpoint(tmp_path / "iter_7")


def test_another_schema_is_an_error_that_says_which(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SCHEMA", 99)
    save_checkpoint(tmp_path / "c", STATE, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="schema 99; this version reads schema 1"):
        read_manifest(tmp_path / "c")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": object()}}, "state/a/b: a object cannot be saved"),
        ({"a": np.array(["x"])}, "state/a: a <U1 array cannot be saved"),
        ({"a": np.array([None])}, "state/a: a object array cannot be saved"),
        ({"a": {1: 2}}, "state/a: the key 1 cannot be saved"),
        ({"a/b": np.zeros(1), "a": {"b": np.ones(1)}}, "two arrays are named '/a/b'"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_nothing(tmp_path, state, message):
    with pytest.raises(CheckpointError, match=message):
        save_checkpoint(tmp_path / "c", state, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["open", "fsync", "rename"])
def test_a_failing_disk_leaves_neither_the_checkpoint_nor_a_part_of_it(tmp_path, monkeypatch, call):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if call == "open":
        monkeypatch.setattr(checkpoint, "open", full, raising=False)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path / "c", STATE, {})
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    save_checkpoint(tmp_path / "c", STATE, {})
    assert_same(load_checkpoint(tmp_path / "c")[0], STATE)


def test_what_a_killed_process_left_is_no_checkpoint_and_no_obstacle(tmp_path):
    left = tmp_path / ".iter_5.tmp"
    left.mkdir()
    (left / "state.json").write_text("half")
    assert list_checkpoints(tmp_path) == []
    save_checkpoint(tmp_path / "iter_5", STATE, {})
    assert [p.name for p in tmp_path.iterdir()] == ["iter_5"]


def test_checkpoints_are_listed_by_their_gradient_step(tmp_path):
    for name in ("iter_900", "iter_1000", "iter_20", "best", "iter_900.new", "iter_x", "iter_"):
        (tmp_path / name).mkdir()
    (tmp_path / "iter_1").write_text("a file")
    assert [p.name for p in list_checkpoints(tmp_path)] == ["iter_20", "iter_900", "iter_1000"]
    assert list_checkpoints(tmp_path / "none") == []


def test_loading_neither_unpickles_nor_loads_mindspore(saved):
    # Unpickling runs code from the file: make any use of it fail.
    script = (
        "import sys, pickle, _pickle\n"
        "def refuse(*a, **k): raise SystemExit('unpickled')\n"
        "for module in (pickle, _pickle):\n"
        "    module.load = module.loads = module.Unpickler = refuse\n"
        "from pathlib import Path\n"
        "from minding.engine.checkpoint import load_checkpoint\n"
        "state, _ = load_checkpoint(Path(sys.argv[1]))\n"
        "assert 'mindspore' not in sys.modules\n"
        "print(state['arrays']['zero_d'].item())\n"
    )
    source = Path(checkpoint.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-c", script, str(saved)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p) or str(source)},
    )  # fmt: skip
    assert (result.stdout.strip(), result.stderr) == ("1.5", "")


def test_a_changed_counter_in_the_manifest_is_found(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "train_iter": 6}))
    with pytest.raises(CheckpointError, match="damaged manifest"):
        load_checkpoint(saved)
