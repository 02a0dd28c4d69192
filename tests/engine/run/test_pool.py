"""A pool keeps versions whole, whatever ends the process; it goes back to any checkpoint, and leaves pins alone."""

import json

import numpy as np
import pytest

from minding.engine.checkpoint import load_checkpoint, save_checkpoint
from minding.engine.run.pool import ModelPool
from proofs.disk_faults import CountingOs, FailingOs, installed


def weights(n):
    return {"net.w": np.full((3, 2), n, np.float32), "net.b": np.array(float(n))}


def filled(folder, scores, **options):
    pool = ModelPool(folder, **options)
    for k, score in enumerate(scores):
        pool.add(weights(k + 1), 10 * k, 100 * k, score, network="module:Net")
    return pool


def numbers(pool):
    return [version.number for version in pool.versions]


def files(pool):
    return sorted(path.name for path in pool.folder.iterdir())


def test_versions_are_added_found_and_read(tmp_path):
    pool = filled(tmp_path / "models", [None, 2.0, -1.0])
    assert not ModelPool(tmp_path / "none").versions
    again = ModelPool(tmp_path / "models")
    found = again.find(2)
    assert (found.iteration, found.env_step, found.score, found.network) == (10, 100, 2.0, "module:Net")
    assert (again.find("latest").number, again.find("best").number, again.find("3").number) == (3, 2, 3)
    arrays = again.read(found)
    assert {name: (array.dtype, array.shape) for name, array in arrays.items()} == {
        "net.w": (np.float32, (3, 2)),
        "net.b": (np.float64, ()),
    }
    arrays["net.w"] += 1
    assert np.array_equal(again.read("best")["net.w"], weights(2)["net.w"])
    lines = (tmp_path / "models/index.jsonl").read_text().splitlines()
    assert [json.loads(line)["version"] for line in lines] == [1, 2, 3]
    assert found.size == found.path.stat().st_size
    assert numbers(pool) == [1, 2, 3]


def test_newest_best_pinned_held_and_periodic_ones_stay(tmp_path):
    pool = filled(tmp_path, [0.0, 9.0, 1.0, 1.0], last=2)
    assert numbers(pool) == [2, 3, 4]
    assert pool.pin(3).pinned
    pool.hold([4])
    for n in range(5, 11):
        pool.add(weights(n), 0, 0)
    assert numbers(pool) == [2, 3, 4, 9, 10]
    assert [version.pinned for version in pool.versions] == [False, True, False, False, False]
    pool.unpin(3)
    pool.hold([])
    pool.add(weights(11), 0, 0)
    assert numbers(pool) == [2, 10, 11]
    assert files(pool) == ["index.jsonl", "pinned.json", *(f"version_{n}.safetensors" for n in (10, 11, 2))]
    assert numbers(filled(tmp_path / "other", [None] * 7, last=1, every=3)) == [3, 6, 7]


class Killed(BaseException):
    pass


class KillingOs(CountingOs):
    """Ends everything at one call; of a write nothing arrives."""

    def __init__(self, at):
        super().__init__()
        self._at = at

    def before(self, name, args):
        if self.calls == self._at:
            raise Killed


def test_a_kill_leaves_the_pool_before_or_after(tmp_path):
    count = CountingOs()
    filled(tmp_path / "count", [5.0, None], last=1)
    with installed(count):
        filled(tmp_path / "count", [None], last=1)
    # Two files and an index are written, and a version is removed.
    assert count.calls > 8
    for at in range(1, count.calls + 1):
        folder = tmp_path / str(at)
        filled(folder, [5.0, None], last=1)
        with installed(KillingOs(at)), pytest.raises(Killed):
            ModelPool(folder, last=1).add(weights(3), 20, 200)
        after = ModelPool(folder, last=1)
        kept = numbers(after)
        assert kept in ([1, 2], [1, 3])
        for version in after.versions:
            assert np.array_equal(after.read(version)["net.w"], weights(version.number)["net.w"])
        newest = after.add(weights(9), 30, 300)
        assert newest == kept[-1] + 1
        assert np.array_equal(after.read("latest")["net.w"], weights(9)["net.w"])
        assert files(after) == ["index.jsonl", "version_1.safetensors", f"version_{newest}.safetensors"]


def test_a_full_disk_leaves_the_pool_as_it_was(tmp_path):
    pool = filled(tmp_path, [5.0, None], last=1)
    before = files(pool)
    for at in range(1, 6):
        with installed(FailingOs(at, 28, lasting=True)), pytest.raises(OSError, match="No space"):
            pool.add(weights(3), 20, 200)
        assert numbers(pool) == [1, 2]
    assert pool.add(weights(4), 20, 200) == 3
    assert files(pool) == [before[0], "version_1.safetensors", "version_3.safetensors"]


def test_a_pool_returns_to_a_checkpoint_after_any_changes(tmp_path):
    pool = filled(tmp_path / "models", [None, 3.0, None], last=2)
    for step in (1, 2, 3):
        previous = tmp_path / f"iter_{step - 1}" if step > 1 else None
        save_checkpoint(tmp_path / f"iter_{step}", pool.state_dict(), {}, previous=previous)
    # Linked, not written again.
    assert {path.stat().st_nlink for path in tmp_path.glob("iter_*/block-*")} == {3}
    before = files(pool)
    for n in range(6):
        pool.add(weights(n), 0, 0, 9.0)
    pool.pin(8)
    state, _ = load_checkpoint(tmp_path / "iter_3")
    for folder in (tmp_path / "models", tmp_path / "elsewhere"):
        again = ModelPool(folder, last=2)
        again.load_state_dict(state)
        assert [name for name in files(again) if name != "pinned.json"] == before
        assert np.array_equal(again.read(2)["net.w"], weights(2)["net.w"])
        assert again.add(weights(4), 30, 300) == 4
    # A pin waits for the version to come back.
    pool.load_state_dict(state)
    for n in range(4, 12):
        pool.add(weights(n), 0, 0)
    assert numbers(pool) == [2, 8, 10, 11]
