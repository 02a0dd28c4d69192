"""Checkpoints under failing disks, killed processes, power cuts and damaged files.

The same machinery as `proofs.crashes`, with fewer cases.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minding.engine import checkpoint
from minding.engine.checkpoint import load_checkpoint, prune_checkpoints, save_checkpoint
from minding.engine.checkpoint.manifest import sha256, verify_file
from minding.engine.errors import DamagedCheckpointError
from proofs import crash_scenario
from proofs import crashes as crash_proofs
from proofs.damage import find_damages
from proofs.disk_faults import CountingOs, FailingOs, installed


@pytest.mark.slow
def test_a_disk_that_fails_at_any_call_breaks_no_promise():
    count, breaks = crash_proofs.prove_errors(crash_proofs.count_calls(), at_most=40)
    assert (count, breaks) == (40, [])


@pytest.mark.slow
def test_a_process_that_dies_at_any_call_breaks_no_promise():
    # In a process of its own: one that has loaded MindSpore must not fork.
    script = (
        "import json, logging\n"
        "from proofs.crashes import count_calls, prove_crashes\n"
        "logging.disable()\n"
        "print(json.dumps(prove_crashes(count_calls(), 100)))\n"
    )
    root = Path(checkpoint.__file__).resolve().parents[2]
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])},
    )  # fmt: skip
    assert result.stderr == ""
    assert json.loads(result.stdout) == [100, []]


@pytest.mark.slow
def test_random_damage_of_any_file_is_found_and_the_checkpoint_before_it_taken(tmp_path):
    for n in (1, 2, 3):
        crash_scenario.save(f"iter_{n}", n).act(tmp_path)
    missed, seconds = find_damages(tmp_path, 200, seed=0)
    assert (missed, len(seconds)) == ([], 200)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_failing_save_raises_the_disks_error_and_leaves_nothing(tmp_path, number):
    save_checkpoint(tmp_path / "iter_1", {"n": 1}, {})
    before = CountingOs()
    with installed(before):
        save_checkpoint(tmp_path / "iter_2", {"n": 2}, {})
    for at in range(1, before.calls):
        with installed(FailingOs(at, number, lasting=False)), pytest.raises(OSError, match=os.strerror(number)):
            save_checkpoint(tmp_path / "iter_3", {"n": 3}, {})
        assert sorted(path.name for path in tmp_path.iterdir()) == ["iter_1", "iter_2"]


def test_a_disk_that_refuses_to_remove_old_ones_is_reported(tmp_path, caplog):
    for n in (1, 2):
        save_checkpoint(tmp_path / f"iter_{n}", {"n": n}, {})
    with installed(FailingOs(1, errno.EROFS, lasting=True)):
        prune_checkpoints(tmp_path, keep_last=1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "iter_1 was not removed" in caplog.messages[0]
    assert load_checkpoint(tmp_path / "iter_1")[0] == {"n": 1}


def test_a_device_is_not_taken_for_an_empty_file_of_a_checkpoint(tmp_path):
    entry = {"size": 0, "sha256": sha256(b"")}
    (tmp_path / "empty").write_bytes(b"")
    verify_file(tmp_path / "empty", entry)
    with pytest.raises(DamagedCheckpointError, match="null: damaged"):
        verify_file(Path("/dev/null"), entry)


def test_a_changed_byte_of_a_file_that_is_not_loaded_is_found(tmp_path):
    (tmp_path / "large").write_bytes(b"ab")
    with pytest.raises(DamagedCheckpointError, match="large: damaged: its SHA-256 differs"):
        verify_file(tmp_path / "large", {"size": 2, "sha256": sha256(b"aa")})
