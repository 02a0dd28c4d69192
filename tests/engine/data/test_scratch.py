"""One process at a time writes a folder, whatever ends it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recordings import log

from minding.cli import run
from minding.engine.data import scratch as scratch_module
from minding.engine.data.dataset import Dataset, load_dataset
from minding.engine.data.dataset_writer import DatasetWriter, save_dataset
from minding.engine.data.scratch import Scratch, remove_unfinished
from minding.engine.errors import DataError
from minding.engine.files import Folder
from minding.training.conversion import convert, open_source
from minding.training.data_plot import plot_dataset
from minding.training.formats import export_minari

EPISODES = [log(2, [0, 1])]


def test_the_second_writer_of_a_name_is_refused(tmp_path):
    with Scratch(tmp_path / "out") as first:
        (first.folder / "part").write_text("whole")
        with pytest.raises(DataError, match=rf"out' is being written by process {os.getpid()} on .*: wait for it"):
            Scratch(tmp_path / "out").__enter__()
        # One who writes something else beside it, or tidies up there, leaves it alone, too.
        with Scratch(tmp_path / "other") as other:
            other.finish()
        with Folder(tmp_path) as folder:
            folder.discard_leftovers()
        first.finish()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "out"]
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["part"]
    with pytest.raises(DataError, match="out' exists: remove it"):
        Scratch(tmp_path / "out").__enter__()


def test_what_a_dead_process_left_is_no_obstacle(tmp_path):
    left = tmp_path / ".out.minding-tmp"
    (left / "inside").mkdir(parents=True)
    for path in (left / "column-0", left / "writer", left / "inside" / "file"):
        path.write_text("process 1 on earth")
    with Scratch(tmp_path / "out") as again:
        assert [each.name for each in again.folder.iterdir()] == ["writer"]
    assert list(tmp_path.iterdir()) == []


def test_whatever_goes_wrong_nothing_stays(tmp_path):
    for error in (OSError, KeyboardInterrupt):
        with contextlib.suppress(error), Scratch(tmp_path / "out") as again:
            (again.folder / "column-0").write_text("half")
            raise error
        assert list(tmp_path.iterdir()) == []


def test_a_process_that_ends_at_once_removes_what_it_writes(tmp_path):
    with Scratch(tmp_path / "out") as again:
        (again.folder / "column-0").write_text("half")
        remove_unfinished()
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(OSError, match="No such file"):
            again.finish()
    # Held to the end of the process, so that no thread finishes meanwhile.
    scratch_module._changing.release()
    assert scratch_module._open == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_leaves_no_scratch(number, tmp_path):
    code = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from minding.cli import process\n"
        "process.end_at_signals()\n"
        "from minding.engine.data.scratch import Scratch\n"
        "with Scratch(Path('out')) as scratch:\n"
        "    (scratch.folder / 'column-0').write_text('half')\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert list(Path(tmp_path).iterdir()) == []


def test_of_two_conversions_into_one_folder_one_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_dataset("one", Dataset.of_episodes(EPISODES))
    with DatasetWriter("two", {"env": load_dataset("one").about["env"]}) as first:
        assert run(["data", "convert", "one", "--out", "two"]) == 2
        first.append(load_dataset("one"))
    assert len(load_dataset("two")) == 2


@pytest.mark.parametrize("form", [str, Path])
def test_folders_are_given_as_text_or_as_path(form, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save_dataset(form("~/one"), Dataset.of_episodes(EPISODES))
    folder = form(tmp_path / "one")
    data = load_dataset(folder)
    assert len(data) == 2
    convert([open_source(folder)], form(tmp_path / "two"))
    export_minari(data, form(tmp_path / "three"), "toy/two-v0")
    plot_dataset(data, form(tmp_path / "four.png"))
    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.startswith(".")) == [
        *("four.png", "one", "three", "two")
    ]
