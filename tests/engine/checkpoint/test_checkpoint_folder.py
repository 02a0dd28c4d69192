"""The checkpoints of a run: order, the newest whole one, what is removed; and failing disks."""

import errno
import logging
import os

import pytest
from fakes import refuses
from fresh import run_fresh

from minding.engine.checkpoint import (
    link_source,
    list_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    resumable_checkpoints,
    save_checkpoint,
    step_of,
    use_newest,
)
from minding.engine.errors import NoCheckpointError
from proofs import crash_scenario
from proofs import crashes as crash_proofs
from proofs.damage import find_damages
from proofs.disk_faults import CountingOs, FailingOs, installed


@pytest.fixture
def folder(tmp_path):
    """Holds iter_1 to iter_4; each knows its number."""
    for n in (1, 2, 3, 4):
        save_checkpoint(tmp_path / f"iter_{n}", {"n": n}, {})
    return tmp_path


def damage(path):
    """So that only the contents tell."""
    (state,) = path.glob("state-*")
    state.write_bytes(state.read_bytes()[:-1] + b"]")


def break_off(path):
    """So that sizes tell."""
    (state,) = path.glob("state-*")
    state.write_bytes(b"")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_checkpoints_are_listed_by_their_gradient_step(tmp_path):
    for name in ("iter_900", "iter_1000", "iter_20", "best", "iter_900.new", "iter_x", "iter_", ".iter_7.minding-tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "iter_1").write_text("a file")
    assert [p.name for p in list_checkpoints(tmp_path)] == ["iter_20", "iter_900", "iter_1000"]
    assert list_checkpoints(tmp_path / "none") == []
    assert (step_of(tmp_path / "iter_20"), step_of(tmp_path / "best")) == (20, None)
    refuses(
        NoCheckpointError,
        ("none of the 4 checkpoints is whole", lambda: newest_checkpoint(tmp_path)),
        ("no checkpoint; train first", lambda: newest_checkpoint(tmp_path / "none")),
    )


def test_the_best_counts_where_no_other_is_whole(folder, caplog):
    save_checkpoint(folder / "best", {"n": 0}, {})
    assert [p.name for p in resumable_checkpoints(folder)] == ["best", "iter_1", "iter_2", "iter_3", "iter_4"]
    assert newest_checkpoint(folder).name == "iter_4"
    for n in (1, 2, 3, 4):
        damage(folder / f"iter_{n}")
    with caplog.at_level(logging.WARNING, "minding.ckpt"):
        assert newest_checkpoint(folder).name == "best"
    assert len(caplog.messages) == 5
    best = f"using {folder / 'best'}, the checkpoint of the best evaluation: "
    assert caplog.messages[4] == f"{best}none of the 4 later ones is whole"
    damage(folder / "best")
    with pytest.raises(NoCheckpointError, match="none of the 5 checkpoints is whole"):
        newest_checkpoint(folder)


def test_the_newest_whole_one_is_found_and_never_removed(folder, caplog):
    assert newest_checkpoint(folder).name == "iter_4"
    damage(folder / "iter_4")
    break_off(folder / "iter_3")
    with caplog.at_level(logging.WARNING, "minding.ckpt"):
        assert newest_checkpoint(folder).name == "iter_2"
    damaged, broken_off, used = caplog.messages
    assert damaged.startswith(f"skipped damaged checkpoint: {folder / 'iter_4'}")
    assert broken_off.startswith(f"skipped damaged checkpoint: {folder / 'iter_3'}")
    assert used == f"using {folder / 'iter_2'}, the newest whole checkpoint"
    for n in (2, 3, 4):
        break_off(folder / f"iter_{n}")
    prune_checkpoints(folder, keep_last=2)
    assert names(folder) == ["iter_1", "iter_3", "iter_4"]
    assert load_checkpoint(newest_checkpoint(folder))[0] == {"n": 1}


def test_a_run_that_has_only_the_best_one_says_that_it_is_used(tmp_path, caplog):
    save_checkpoint(tmp_path / "best", {"n": 0}, {})
    with caplog.at_level(logging.WARNING, "minding.ckpt"):
        assert use_newest(tmp_path, lambda found: None).path == tmp_path / "best"
    best = f"using {tmp_path / 'best'}, the checkpoint of the best evaluation: there is no later one"
    assert caplog.messages == [best]
    save_checkpoint(tmp_path / "iter_7", {"n": 7}, {})
    assert use_newest(tmp_path, lambda found: None).path == tmp_path / "iter_7"
    assert caplog.messages == [best]


def test_a_save_removes_only_what_killed_processes_left(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x")
    (folder / ".iter_2.minding-tmp" / "inner").mkdir(parents=True)
    (folder / ".iter_2.minding-tmp" / "state-1.json").write_text("half")
    (folder / ".iter_2.minding-tmp" / "link").symlink_to(elsewhere)
    (folder / ".mine.tmp").mkdir()
    save_checkpoint(folder / "iter_5", {"n": 5}, {})
    assert names(folder) == [".mine.tmp", "iter_1", "iter_2", "iter_3", "iter_4", "iter_5"]
    assert (elsewhere / "precious").exists()


def test_the_oldest_are_removed_and_protected_ones_not_counted(folder):
    prune_checkpoints(folder, keep_last=1, protect=[folder / "iter_1", folder / "iter_4"])
    assert names(folder) == ["iter_1", "iter_3", "iter_4"]
    prune_checkpoints(folder, keep_last=2)
    assert names(folder) == ["iter_3", "iter_4"]
    prune_checkpoints(folder, keep_last=0)
    assert names(folder) == ["iter_4"]


def test_blocks_are_linked_from_the_last_but_one(folder):
    assert link_source(folder) == folder / "iter_3"
    prune_checkpoints(folder, keep_last=1)
    assert link_source(folder) is None
    assert link_source(folder / "none") is None


# Failing disks, killed processes and damaged files: the machinery of proofs.crashes, with fewer cases


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
        "print(json.dumps(prove_crashes(count_calls(), 60)))\n"
    )
    assert run_fresh(script) == ["[60, []]"]


@pytest.mark.slow
def test_damage_is_found_and_the_checkpoint_before_it_taken(tmp_path):
    for n in (1, 2, 3):
        crash_scenario.save(f"iter_{n}", n).act(tmp_path)
    missed, seconds = find_damages(tmp_path, 200, seed=0)
    assert (missed, len(seconds)) == ([], 200)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_failing_save_raises_the_disks_error_and_leaves_none(tmp_path, number):
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
